"""Who carries a direction, and whether the shared model serves its sites: counted, bounded by one a site, and told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus, FloatArray, Total
from dcfpca.rpca.refinement.closing_plan import CHECK, VERDICT, ClosingPlan
from dcfpca.rpca.refinement.closing_stage import CARRIERS
from dcfpca.rpca.simulate import Simulation, collect, exchange, simulate
from dcfpca.rpca.stage_list import Method, StagedSite
from dcfpca.spec import parse_spec

ROWS, COLUMNS, SITES = 20, 120, 5


def _sites(seed: int, planted: int = 0) -> tuple[list[FloatArray], FloatArray]:
    """Sites of rank 2, the last `planted` of which move along a pattern that a few columns of the first have."""
    rng = np.random.default_rng(seed)
    factors, pattern = rng.normal(size=(ROWS, 2)), np.zeros(ROWS)
    pattern[rng.choice(ROWS, 6, replace=False)] = 1.0
    sites = [factors @ rng.normal(size=(2, COLUMNS)) + 0.4 * rng.normal(size=(ROWS, COLUMNS)) for _ in range(SITES)]
    for place in range(SITES - planted, SITES):
        sites[place] += 4.0 * np.outer(pattern, rng.normal(size=COLUMNS))
    sites[0][:, :3] += 5.0 * pattern[:, None]
    return sites, pattern


@cache
def _run(planted: int) -> tuple[Method, Simulation]:
    method = method_of(parse_spec({"rows": ROWS, "rank": 2 + planted}))
    return method, simulate(method, [ArrayColumns(M) for M in _sites(1, planted)[0]])


@pytest.mark.slow
def test_a_direction_of_one_site_is_counted_once_and_left_out_of_the_model_that_is_published() -> None:
    method, run = _run(1)
    carriers = np.linalg.eigvalsh(run.consensus.memory[CARRIERS])
    assert carriers.size == 3
    np.testing.assert_allclose(carriers, [1.0, 5.0, 5.0], atol=0.3)
    U, pattern = method.model(run.consensus)["U"], _sites(1, 1)[1]
    assert U.shape[1] == 2
    assert np.linalg.norm(U.T @ pattern) < 0.5 * np.linalg.norm(pattern)
    verdict = method.verdict(run.consensus)
    assert verdict is not None
    assert any("1 of 3 directions (carried by 1)" in note for note in verdict.notes)
    as_told = replace(run.consensus, memory={})  # at a site
    assert method.model(as_told)["U"].shape[1] == 3


@pytest.mark.slow
def test_what_all_sites_carry_is_published_whole() -> None:
    method, run = _run(0)
    assert method.model(run.consensus)["U"].shape[1] == 2


@pytest.mark.slow
def test_a_site_that_plants_a_pattern_does_not_hide_it_from_another() -> None:
    _, run = _run(1)
    pattern = _sites(1, 1)[1]
    flagged = run.results[0].S.toarray() != 0.0
    assert flagged[np.ix_(pattern > 0.0, np.arange(3))].mean() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: _added(s, 3, 7.0), "the vote of the sites is larger than it can be"),
        (lambda s: _added(s, 3, 0.5), "the vote of the sites is not a whole number"),
        (lambda s: _added(s, 4, 9.0), "above the number of sites"),
        (lambda s: _added(s, 4, -9.0), "number of a direction's carriers is negative"),
        (lambda s: _added(s, 2, 2.0), "more entries are flagged than there are"),
    ],
)
def test_nobody_adds_more_than_one_to_a_count(change: object, reason: str) -> None:
    method, consensus, total = _last_sum()
    assert method.conserved(consensus, total) == ""
    changed = replace(total.sums, scalars=change(total.sums.scalars))  # type: ignore[operator]
    assert reason in method.conserved(consensus, replace(total, sums=changed))


def test_rounding_breaks_no_law_where_all_sites_carry_all_directions() -> None:
    method = method_of(parse_spec({"rows": ROWS, "rank": 2}))
    sums = method.stage(CHECK).up.zeros()
    sums.scalars[4:] = SITES * (1.0 + 4.0 * np.finfo(np.float64).eps) * np.eye(2)[np.triu_indices(2)]
    assert method.conserved(replace(method.begin(), stage=CHECK), Total(sums, SITES)) == ""


@pytest.mark.slow
def test_a_model_that_fails_most_sites_is_told_at_the_operator() -> None:
    method, consensus, total = _last_sum()
    for votes, fails in ((2.0, False), (3.0, True)):
        scalars = total.sums.scalars.copy()
        scalars[3] = votes
        after = method.advance(consensus, replace(total, sums=replace(total.sums, scalars=scalars)))
        verdict = method.verdict(after)
        assert verdict is not None
        assert ("at more than half of the sites, a model of the site" in verdict.sentence) == fails
        assert ClosingPlan.of(after.broadcast).verdict[VERDICT.index("failing")] == float(fails)


@pytest.mark.slow
def test_a_site_whose_model_is_another_knows_it() -> None:
    """A broadcast with a covariance that no site has: every site measures that its own predicts far better."""
    method, consensus, _ = _last_sum()
    plan = ClosingPlan.of(consensus.broadcast)
    assert plan.calibration is not None
    signs = np.where(np.arange(ROWS) % 2, 1.0, -1.0)[:, None]
    turned = replace(plan, calibration=replace(plan.calibration, factor=signs * plan.calibration.factor))
    site = StagedSite(method, ArrayColumns(_sites(1)[0][2]))
    update = site.answer(replace(consensus, broadcast=turned.broadcast()))
    assert update.scalars[3] == 1.0
    assert collect(site, replace(consensus, broadcast=turned.broadcast())).certificate["error_ratio"] > 2.0


def _added(scalars: FloatArray, place: int, amount: float) -> FloatArray:
    changed = scalars.copy()
    changed[place] += amount
    return changed


@cache
def _last_sum() -> tuple[Method, Consensus, Total]:
    """A federation of alike sites before the last round, and the sum of that."""
    method = method_of(parse_spec({"rows": ROWS}))
    sites: Sequence[StagedSite] = [method.site(ArrayColumns(M)) for M in _sites(1)[0]]
    consensus = method.begin()
    while consensus.stage != CHECK:
        consensus = method.advance(consensus, exchange(method, consensus, sites))
    return method, consensus, exchange(method, consensus, sites)
