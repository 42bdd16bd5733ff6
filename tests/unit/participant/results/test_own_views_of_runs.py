"""Which runs judge entries by a view of the site's own; the others say in one sentence that they do not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray, Outcome
from dcfpca.rpca.simulate import exchange, simulate_private
from dcfpca.spec import parse_spec
from dcfpca.terms import Terms
from participant.results.manifest import ResultFacts
from participant.results.writing import write_results

FACTS = ResultFacts("run-1", "a", bytes(32), 9, Outcome.CONVERGED.value, "2026-01-01T00:00:00+00:00")
NAMES = tuple(f"f{row}" for row in range(12))
FACTORS = np.random.default_rng(1).normal(size=(12, 2))


def _tables(columns: int = 120) -> list[FloatArray]:
    """Three sites, the first of which has centres of its own."""
    rng = np.random.default_rng(2)
    tables = [FACTORS @ rng.normal(size=(2, columns)) + 0.3 * rng.normal(size=(12, columns)) for _ in range(4)]
    tables[0] += 3.0 * rng.normal(size=(12, 1))
    return tables


def _result(folder: Path, warm: bool = False, lacks: bool = False, **keys: Any) -> dict[str, Any]:
    """The manifest of the first site's result."""
    spec, tables = parse_spec({"features": NAMES, "rank": 2, **keys}), _tables()
    if lacks:
        tables[0][4] = np.nan
    method = method_of(spec)
    sites, consensus = [method.site(ArrayColumns(M)) for M in tables], method.begin()
    if warm:
        consensus = replace(consensus, memory={"warm": np.linalg.qr(FACTORS)[0]})
    while consensus.outcome is None:
        consensus = method.advance(consensus, exchange(method, consensus, sites))
    write_results(folder, FACTS, Terms.of(spec), sites[0], consensus, ArrayColumns(tables[0]))
    return dict(json.loads((folder / "run-1" / "manifest.json").read_text()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys", [{}, {"warm": True}, {"lacks": True, "missing_features": "allow"}], ids=["cold", "warm", "lacking"]
)
def test_a_site_has_a_view_of_its_own_in_warm_runs_and_where_it_lacks_a_feature(
    tmp_path: Path, keys: dict[str, Any]
) -> None:
    told = _result(tmp_path, **keys)
    assert "error_ratio" in told["certificate"]
    assert told["certificate"]["outlier_share"] < 0.02  # though its centres lie ten deviations off the others'
    assert not [note for note in told["verdict"]["notes"] if "judged only by what all sites share" in note]


@pytest.mark.slow
@pytest.mark.parametrize("keys", [{"method": "gradient"}, {"covariance": False}])
def test_a_run_without_own_views_says_so(tmp_path: Path, keys: dict[str, Any]) -> None:
    told = _result(tmp_path, **keys)
    assert "error_ratio" not in told["certificate"]
    assert len([note for note in told["verdict"]["notes"] if "judged only by what all sites share" in note]) == 1


def test_so_does_a_run_with_differential_privacy(tmp_path: Path) -> None:
    spec = parse_spec({"features": NAMES, "rank": 2, "privacy": {"epsilon": 3.0, "max_error": 1.0}})
    method, tables = method_of(spec), _tables(2000)
    final = simulate_private(method, [ArrayColumns(M) for M in tables], np.random.default_rng(3).bytes)
    site = method.site(ArrayColumns(tables[0]))
    write_results(tmp_path, FACTS, Terms.of(spec), site, final, ArrayColumns(tables[0]))
    told = json.loads((tmp_path / "run-1" / "manifest.json").read_text())
    assert "error_ratio" not in told["certificate"]
    assert len([note for note in told["verdict"]["notes"] if "no differential privacy" in note]) == 1
