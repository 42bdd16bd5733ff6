"""What verdicts say, and what they keep to themselves."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import numpy as np
import pytest

from dcfpca.rpca.column_blocks import ArrayColumns, split
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.method import FloatArray, Outcome, Verdict
from dcfpca.rpca.refinement.closing import with_closing_rounds
from dcfpca.rpca.refinement.closing_plan import VERDICT, ClosingPlan, FitEnding
from dcfpca.rpca.refinement.verdict import FEWEST_TOLD, FlagCounts, feature_notes, figures_of, verdict_of
from dcfpca.rpca.simulate import Simulation, simulate
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver

NAMES = tuple(f"metric {row}" for row in range(14))


def _table(columns: int = 800) -> FloatArray:
    rng = np.random.default_rng(2)
    return rng.standard_normal((14, 2)) @ rng.standard_normal((2, columns)) + 0.3 * rng.standard_normal((14, columns))


def _run(M: FloatArray, rank: int | None = None, bound: int = 5) -> tuple[Method, Simulation]:
    width = rank or bound
    inner = subspace_method(SubspaceSolver(M.shape[0], width, 100, 1e-9, fixed_rank=rank is not None))
    method = with_closing_rounds(inner, fixed_rank=rank is not None)
    return method, simulate(method, [ArrayColumns(M)])


def _verdict(method: Method, run: Simulation) -> Verdict:
    verdict = method.verdict(run.consensus, NAMES)
    assert verdict is not None
    return verdict


@pytest.fixture(scope="module")
def plan() -> ClosingPlan:
    return ClosingPlan.of(_run(_table())[1].consensus.broadcast)


def test_features_that_cannot_carry_a_low_rank_part_are_named_by_their_kind() -> None:
    M = _table()
    M[3], M[5], M[8] = 7.0, M[5] > np.quantile(M[5], 0.88), M[8] > 0.0
    notes = "\n".join(_verdict(*_run(M)).notes)
    assert "Constant, so of no use in predicting the others: metric 3." in notes
    assert "Nearly always one value, so only values far from all others are flagged: metric 5." in notes
    assert "Two values; neither is flagged for being rare: metric 8." in notes


def test_a_small_share_of_flags_is_not_rounded_to_nothing(plan: ClosingPlan) -> None:
    few = _with(plan, flagged=0.0005, flags=7.0, ordinary=0.2, ordinary_most=4.0)
    said = "0.05 % of the entries are flagged, of which none (up to 4 of 7) are expected to be ordinary"
    assert said in verdict_of(few, Outcome.CONVERGED).sentence


def test_an_answer_is_called_checked_only_if_the_check_was_held_and_found_few_ordinary_entries(
    plan: ClosingPlan,
) -> None:
    held = {"flags": 100.0, "ordinary": 5.0, "ordinary_most": 10.0}
    assert verdict_of(_with(plan, **held), Outcome.CONVERGED).checked
    assert (
        "of which some 5 (up to 10 of 100) are expected to be ordinary"
        in verdict_of(_with(plan, **held), Outcome.CONVERGED).sentence
    )
    not_held = verdict_of(_with(plan, **held | {"ordinary_most": 0.0}), Outcome.CONVERGED)
    assert not_held.sound
    assert not not_held.checked
    assert "how many of them are ordinary was not checked" in not_held.sentence
    failed = verdict_of(_with(plan, **held | {"ordinary": 30.0, "ordinary_most": 40.0}), Outcome.CONVERGED)
    assert not failed.sound
    assert "samples drawn from the fit" in failed.sentence


def _with(plan: ClosingPlan, **figures: float) -> ClosingPlan:
    known = plan.verdict.copy()
    for name, value in figures.items():
        known[VERDICT.index(name)] = value
    return replace(plan, verdict=known)


def test_continuous_features_are_not_named(plan: ClosingPlan) -> None:
    assert feature_notes(plan) == ()


def test_a_sound_answer_is_told_with_what_it_predicts(plan: ClosingPlan) -> None:
    verdict = verdict_of(plan, Outcome.CONVERGED, 5)
    assert verdict.sound
    assert verdict.sentence.startswith("Rank 2 predicts ")


def test_every_reason_against_an_answer_is_told_and_what_to_do(plan: ClosingPlan) -> None:
    figures = dict.fromkeys(VERDICT, 0.0) | {
        "flagged": 0.2,
        "worst_flagged": 0.5,
        "worst_feature": 4.0,
        "far_entries": 0.1,
        "odd_columns": 0.25,
    }
    bad = replace(plan, verdict=np.array(list(figures.values())), noise=1e-3 * plan.spread)
    told = verdict_of(bad, Outcome.OUT_OF_ROUNDS, 2, NAMES)
    assert not told.sound
    for expected in (
        "round limit, raise rounds",
        "bound 2, raise max_rank",
        "hardly better than medians do, lower the rank",
        "no noise left",
        "more entries are flagged",
        "50 % of the entries of metric 4",
        "leaves the range",
        "200 samples (25 %) are not explained",
    ):
        assert expected in told.sentence


def test_what_a_reason_asks_for_is_a_key_of_the_spec(plan: ClosingPlan) -> None:
    rank = plan.rank
    assert verdict_of(plan, Outcome.CONVERGED, 2 * rank).changes == ()
    assert verdict_of(plan, Outcome.CONVERGED, rank).changes == (f"max_rank={2 * rank}",)
    poor = _with(plan, predicted=0.0)
    assert verdict_of(poor, Outcome.CONVERGED, 2 * rank).changes == (f"max_rank={rank - 1}",)
    assert verdict_of(poor, Outcome.CONVERGED).changes == (f"rank={rank - 1}",)


def test_flags_too_few_to_be_counted_are_not_told_as_none(plan: ClosingPlan) -> None:
    told = verdict_of(_with(plan, flags=0.0, flagged=0.0), Outcome.CONVERGED)
    assert "; few or no entries are flagged" in told.sentence
    assert "0.0 %" not in told.sentence


def test_a_bound_that_no_rank_can_exceed_is_not_to_be_raised() -> None:
    rng = np.random.default_rng(3)
    M = np.outer([1.0, 2.0, -1.0], rng.standard_normal(400)) + 0.1 * rng.standard_normal((3, 400))
    for bound, raised in ((1, True), (2, False)):
        plan = ClosingPlan.of(_run(M, rank=bound)[1].consensus.broadcast)
        assert any("raise max_rank" in one for one in verdict_of(plan, Outcome.CONVERGED, bound).reasons) == raised


@pytest.mark.parametrize(("odd", "told"), [(FEWEST_TOLD - 1, 0.0), (FEWEST_TOLD, FEWEST_TOLD / 800)])
def test_a_count_of_samples_below_the_disclosure_limit_is_told_as_none(
    plan: ClosingPlan, odd: int, told: float
) -> None:
    flags = FlagCounts(np.ones(14), np.ones(14), np.full(14, 56.0), 14.0)
    figures = figures_of(plan, flags, np.array([800.0, 0.0, 800.0, float(odd)]))
    assert figures[VERDICT.index("odd_columns")] == pytest.approx(told)


def test_a_rank_that_predicts_nothing_is_not_to_be_trusted() -> None:
    M = np.random.default_rng(0).standard_normal((14, 500))
    verdict = _verdict(*_run(M, rank=3))
    assert not verdict.sound
    assert "lower the rank" in verdict.sentence


def test_gradient_has_a_verdict_and_flags_at_the_same_rate() -> None:
    M = _table(400)
    M[2, ::40] += 30.0
    inner = gradient_method(GradientSolver(14, 2, 150, 1e-6))
    method = with_closing_rounds(inner, refines=False)
    run = simulate(method, split(M, (150, 250)))
    verdict = method.verdict(run.consensus)
    assert verdict is not None
    assert ClosingPlan.of(run.consensus.broadcast).ending is FitEnding.KEPT
    flagged = run.outliers.toarray() != 0.0
    assert flagged[2, ::40].all()
    flagged[2, ::40] = False
    assert np.mean(flagged) <= 0.012


def test_the_one_feature_that_makes_most_flags_is_named(plan: ClosingPlan) -> None:
    most = {"flags": 100.0, "flagged": 0.01, "worst_flagged": 0.13, "worst_feature": 4.0}
    said = "Has most of the flags, and its findings come last"
    assert any(said in note and "metric 4" in note for note in _notes(plan, **most))
    assert not any(said in note for note in _notes(plan, **most | {"worst_flagged": 0.05}))
    assert not any(said in note for note in _notes(plan, **most | {"flags": 9.0}))


def _notes(plan: ClosingPlan, **figures: float) -> tuple[str, ...]:
    return verdict_of(_with(plan, **figures), Outcome.CONVERGED, features=NAMES).notes


def test_a_feature_of_which_much_is_flagged_is_left_out_by_the_change_that_is_asked_for(plan: ClosingPlan) -> None:
    much = _with(plan, worst_flagged=0.4, worst_feature=4.0)
    (change,) = verdict_of(much, Outcome.CONVERGED, features=NAMES).changes
    assert tomllib.loads(change)["features"] == [name for name in NAMES if name != "metric 4"]
    assert verdict_of(much, Outcome.CONVERGED).changes == ()
