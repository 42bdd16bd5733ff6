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
from dcfpca.python_api.result_files import read_table
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.simulate import exchange
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms
from participant.results.manifest import ResultFacts
from participant.results.writing import ResultNames, write_results

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
    write_results(tmp_path, FACTS, Terms.of(spec), site, consensus, ArrayColumns(M), names)
    return tmp_path / "r1"


def test_the_wrong_entry_is_read_by_its_id_and_feature(written: Path) -> None:
    result = dcfpca.read_result(written)
    assert result.features == tuple("abcde")
    assert result.ids[7] == "P7"
    assert result.outliers()[0][:2] == ("P7", "c")
    rebuilt = result.centre[:, None] + result.scale[:, None] * (result.U @ result.V.T)
    np.testing.assert_allclose(rebuilt, result.L, atol=1e-12 * np.abs(result.L).max())
    assert result.manifest["site_orientation"] == "samples-in-rows"


def test_tables_name_the_wrong_entry_with_what_was_expected_and_found(written: Path) -> None:
    result = dcfpca.read_result(written)
    first = next(result.outlier_table().rows())
    assert (first["id"], first["feature"]) == ("P7", "c")
    assert first["observed"] == pytest.approx(first["expected"] + first["deviation"], rel=1e-4)
    samples = result.sample_table()
    assert len(samples) == len(result.ids)
    assert sorted(samples["id"]) == sorted(result.ids)
    assert samples["flagged"].dtype == bool


def test_the_table_of_outliers_has_every_digit_of_the_arrays(written: Path) -> None:
    result = dcfpca.read_result(written)
    first = next(result.outlier_table().rows())
    assert first["expected"] == result.L[2, 7]
    assert first["deviation"] == result.S[2, 7]


def test_ids_that_look_like_numbers_stay_text_in_tables(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,z,flagged\n007,1.5,yes\n008,,no\n")
    table = read_table(tmp_path / "t.csv")
    assert table["id"].tolist() == ["007", "008"]
    assert np.isnan(table["z"][1])
    assert table["flagged"].tolist() == [True, False]


def test_frames_and_datasets_carry_names_and_ids(written: Path) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("xarray")
    result = dcfpca.read_result(written)
    frames = result.to_pandas()
    assert frames["L"].loc["P7", "c"] == result.L[2, 7]
    assert frames["S"].shape == frames["L"].shape == (30, 5)
    assert list(frames["U"].index) == list("abcde")
    dataset = result.to_xarray()
    rebuilt = dataset.centre + dataset.scale * (dataset.V @ dataset.U)
    assert float(abs(rebuilt - dataset.L).max()) < 1e-9
    assert float(dataset.S.sel(id="P7", feature="c")) == frames["S"].loc["P7", "c"]


def test_what_is_no_result_or_a_damaged_one_is_refused(written: Path) -> None:
    with pytest.raises(BadInput, match="is not the result of a run"):
        dcfpca.read_result(written.parent)
    (written / "ids.txt").write_text("P0\n")
    with pytest.raises(UnusableState, match="another number of lines"):
        dcfpca.read_result(written)


def test_every_public_name_is_there_and_in_dir() -> None:
    assert set(dcfpca.__all__) <= set(dir(dcfpca))
    assert all(getattr(dcfpca, name) is not None for name in dcfpca.__all__)


def test_the_package_is_imported_without_numerics_or_network() -> None:
    code = "import sys, dcfpca; dir(dcfpca); sys.exit(bool({'numpy', 'grpc', 'pandas'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
