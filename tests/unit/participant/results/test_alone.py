"""A result that the shared model has failed: formed from the site's own columns, if its policy says so, and said."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Semaphore

import numpy as np
import pytest

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus, FloatArray, Outcome
from dcfpca.rpca.refinement.closing_plan import VERDICT, ClosingPlan
from dcfpca.rpca.scaling import split_broadcast
from dcfpca.rpca.simulate import exchange, simulate
from dcfpca.rpca.stage import Site
from dcfpca.rpca.stage_list import Method, StagedSite
from dcfpca.spec import RunSpec, parse_spec
from dcfpca.terms import Terms
from participant.engine.partitioned_site import PartitionedSite, PartWorkers
from participant.results.manifest import ResultFacts
from participant.results.writing import write_results

FACTS = ResultFacts("run-1", "a", bytes(32), 9, Outcome.CONVERGED.value, "2026-01-01T00:00:00+00:00")
NAMES = tuple(f"f{row}" for row in range(12))


def _run(spec: RunSpec) -> tuple[StagedSite, Consensus, FloatArray]:
    """The first of three sites, which lacks a feature, the end of their run, and its columns."""
    rng = np.random.default_rng(2)
    factors = rng.normal(size=(12, 2))
    tables = [5.0 + factors @ rng.normal(size=(2, 80)) + 0.3 * rng.normal(size=(12, 80)) for _ in range(4)]
    tables[0][4] = np.nan
    method = method_of(spec)
    sites, consensus = [method.site(ArrayColumns(M)) for M in tables], method.begin()
    while consensus.outcome is None:
        consensus = method.advance(consensus, exchange(method, consensus, sites))
    return sites[0], consensus, tables[0]


def _failing(consensus: Consensus) -> Consensus:
    """The same end, in which most sites have said that the model fails them."""
    inside, centre, scale = split_broadcast(consensus.broadcast, len(NAMES))
    plan = ClosingPlan.of(inside)
    figures = plan.verdict.copy()
    figures[VERDICT.index("failing")] = 1.0
    told = replace(plan, verdict=figures).broadcast()
    return replace(consensus, broadcast=replace(told, scalars=np.concatenate([told.scalars, centre, scale])))


def _whole(M: FloatArray, method: Method) -> Site:
    return method.site(ArrayColumns(M))


def _in_parts(M: FloatArray, method: Method) -> Site:
    workers = PartWorkers(ThreadPoolExecutor(1), Semaphore(1), 1, None)
    return PartitionedSite(method, ArrayColumns(M), 33, workers)


@pytest.mark.slow
@pytest.mark.parametrize("made_of", [_whole, _in_parts])
def test_where_most_sites_say_the_model_fails_a_result_may_be_that_of_the_site_alone(
    tmp_path: Path, made_of: Callable[[FloatArray, Method], Site]
) -> None:
    spec = parse_spec({"features": NAMES, "rank": 2, "scaling": "robust", "missing_features": "allow"})
    site, final, M = _run(spec)
    made = [(final, "shared"), (_failing(final), "failed")]
    for consensus, name in made:
        U = write_results(
            tmp_path / name, FACTS, Terms.of(spec), site, consensus, ArrayColumns(M),
            alone=lambda method: made_of(M, method),
        )  # fmt: skip
        np.testing.assert_array_equal(U, method_of(spec).model(final)["U"])  # a later run begins at what all share
    told = [json.loads((tmp_path / name / "run-1" / "manifest.json").read_text()) for _, name in made]
    alone = "this result is of a fit of this site's columns alone"
    assert [alone in one["verdict"]["sentence"] for one in told] == [False, True]
    own = simulate(method_of(spec.model_copy(update={"missing_features": "refuse", "min_cell": 1})), [ArrayColumns(M)])
    np.testing.assert_allclose(np.load(tmp_path / "failed" / "run-1" / "L.npy"), own.low_rank, atol=1e-6)
    assert np.abs(np.load(tmp_path / "shared" / "run-1" / "L.npy") - own.low_rank).max() > 1e-3
