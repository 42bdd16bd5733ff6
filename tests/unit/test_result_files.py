"""What a program reads of a run: arrays, names and ids that belong together, in the data's own units."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dcfpca
from dcfpca.errors import BadInput, UnusableState
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.simulate import exchange
from dcfpca.spec import RunSpec
from participant.results import FinalBroadcast, ResultFacts, ResultNames, write_results

FACTS = ResultFacts("r1", "hospital-a", b"d" * 32, 3, "converged", "2026-01-01T00:00:00+00:00")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A run of one site in which one entry is wrong: the third feature of sample P7."""
    rng = np.random.default_rng(3)
    M = rng.standard_normal((5, 1)) @ rng.standard_normal((1, 30))
    M[2, 7] += 50
    spec = RunSpec.model_validate({"rows": 5, "rank": 1, "rounds": 40})
    method = method_of(spec)
    site, consensus = method.site(ArrayColumns(M)), method.begin()
    while consensus.outcome is None:
        consensus = method.advance(consensus, exchange(method, consensus, [site]))
    names = ResultNames(tuple("abcde"), (f"P{k}" for k in range(30)), "samples-in-rows")
    write_results(tmp_path, FACTS, spec, site, FinalBroadcast(consensus.broadcast, consensus.stage), 30, names)
    return tmp_path / "r1"


def test_the_wrong_entry_is_read_by_its_id_and_feature(written: Path) -> None:
    result = dcfpca.read_result(written)
    assert result.features == tuple("abcde")
    assert result.ids[7] == "P7"
    assert result.outliers()[0][:2] == ("P7", "c")
    rebuilt = result.centre[:, None] + result.scale[:, None] * (result.U @ result.V.T)
    np.testing.assert_allclose(rebuilt, result.L, atol=1e-12 * np.abs(result.L).max())
    assert result.manifest["site_orientation"] == "samples-in-rows"


def test_what_is_no_result_or_a_damaged_one_is_refused(written: Path) -> None:
    with pytest.raises(BadInput, match="is not the result of a run"):
        dcfpca.read_result(written.parent)
    (written / "ids.txt").write_text("P0\n")
    with pytest.raises(UnusableState, match="another number of lines"):
        dcfpca.read_result(written)


def test_the_package_is_imported_without_the_numerics() -> None:
    code = "import sys, dcfpca; assert 'read_result' in dir(dcfpca); sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
