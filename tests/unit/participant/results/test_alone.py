"""A result that the shared model has failed: formed from the site's own columns, if its policy says so, and said."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Semaphore

import numpy as np
import pytest

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus, FloatArray, Outcome
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


def _run(spec: RunSpec, *, bent: bool) -> tuple[StagedSite, Consensus, FloatArray]:
    """The first of four sites, which lacks a feature, the end of their run, and its columns. With `bent` the last one
    has most columns, of another population, and does not obey `max_share`."""
    rng = np.random.default_rng(2)
    factors, others = rng.normal(size=(2, 12, 2))
    tables = [5.0 + factors @ rng.normal(size=(2, 160)) + 0.3 * rng.normal(size=(12, 160)) for _ in range(4)]
    if bent:
        tables[3] = 5.0 + others @ rng.normal(size=(2, 6000)) + 0.3 * rng.normal(size=(12, 6000))
    tables[0][4] = np.nan
    method = replace(method_of(spec), max_share=1.0)
    sites, consensus = [method.site(ArrayColumns(M)) for M in tables], method.begin()
    while consensus.outcome is None:
        total = exchange(method, consensus, sites)
        assert method.conserved(consensus, total) == ""  # nothing about it is impossible
        consensus = method.advance(consensus, total)
    return sites[0], consensus, tables[0]


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
    told = []
    for bent in (False, True):
        site, final, M = _run(spec, bent=bent)
        U = write_results(
            tmp_path / str(bent), FACTS, Terms.of(spec), site, final, ArrayColumns(M),
            alone=partial(made_of, M),
        )  # fmt: skip
        np.testing.assert_array_equal(U, method_of(spec).model(final)["U"])  # a later run begins at what all share
        told.append(json.loads((tmp_path / str(bent) / "run-1" / "manifest.json").read_text())["verdict"]["sentence"])
    alone = "this result is from a fit of this site's columns alone"
    assert [alone in sentence for sentence in told] == [False, True]
    own = simulate(method_of(spec.model_copy(update={"missing_features": "refuse", "min_cell": 1})), [ArrayColumns(M)])
    made = [np.load(tmp_path / str(bent) / "run-1" / "L.npy") for bent in (False, True)]
    np.testing.assert_allclose(made[1], own.low_rank, atol=1e-6)
    assert np.abs(made[0] - own.low_rank).max() > 1e-3
