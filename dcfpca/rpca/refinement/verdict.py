"""Whether the answer of a run can be trusted, and why not, in one sentence; from sums that everybody has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dcfpca.rpca.method import FloatArray, Outcome, Verdict
from dcfpca.rpca.refinement.closing_plan import VERDICT, ClosingPlan, FitEnding
from dcfpca.rpca.refinement.feature_notes import feature_notes, named, unexplained
from dcfpca.rpca.refinement.noise_scale import LEAST_OF_SPREAD
from dcfpca.rpca.refinement.size_histogram import RESIDUAL_BINS, count_above

POOR_PREDICTION = 0.1  # of the hidden entries' spread
MANY_FLAGGED, MANY_IN_FEATURE = 0.15, 0.2
MANY_FAR, MANY_ODD = 1e-3, 0.05
FEWEST_TOLD = 5  # samples: a smaller count over all sites is told as none, for it might point at persons
MANY_NOISELESS = 0.5  # of the features


def figures_of(plan: ClosingPlan, counts: FloatArray, null_counts: FloatArray) -> FloatArray:
    """The figures named in VERDICT, from the counts of the null round."""
    figures = plan.verdict.copy()
    entries = np.maximum(counts.sum(axis=1), 1e-300)
    by_feature = count_above(counts, plan.noise, plan.cut * plan.null_scale, RESIDUAL_BINS)
    columns, far, _, odd = null_counts
    found = {
        "flagged": float(by_feature.sum() / entries.sum()),
        "worst_flagged": float((by_feature / entries).max(initial=0.0)),
        "worst_feature": float(np.argmax(by_feature / entries)),
        "unexplained_features": float(np.count_nonzero(unexplained(plan))),
        "far_entries": float(far / max(columns, 1e-300)),
        "odd_columns": float(odd / max(columns, 1e-300)) if np.rint(odd) >= FEWEST_TOLD else 0.0,
    }
    for name, value in found.items():
        figures[VERDICT.index(name)] = value
    return figures


def verdict_of(plan: ClosingPlan, outcome: Outcome, bound: int | None = None, features: Sequence[str] = ()) -> Verdict:
    """The verdict on a finished run; `bound` is the bound on the rank, where the rank was to be found."""
    figures = dict(zip(VERDICT, (float(value) for value in plan.verdict), strict=True))
    reasons = (*_of_the_run(plan, outcome, bound),)
    if plan.ending is not FitEnding.EXACT:
        reasons = (*reasons, *_of_the_answer(plan, figures, features))
    return Verdict(not reasons, _found(plan, figures) + _told(reasons), reasons, feature_notes(plan, features))


def _found(plan: ClosingPlan, figures: dict[str, float]) -> str:
    if plan.ending is FitEnding.EXACT:
        return f"Exact: rank {plan.rank} and sparse outliers explain the data to the tolerance"
    share = f"{100.0 * figures['flagged']:.1f} % of the entries are flagged"
    if plan.rank == 0:
        return f"Rank 0: no direction predicts hidden entries better than the features' medians do; {share}"
    return f"Rank {plan.rank} predicts {100.0 * figures['predicted']:.0f} % of the hidden entries' spread; {share}"


def _of_the_run(plan: ClosingPlan, outcome: Outcome, bound: int | None) -> Iterator[str]:
    if outcome is Outcome.OUT_OF_ROUNDS:
        yield "the run stopped at its round limit, raise rounds"
    if outcome is Outcome.DIVERGED:
        yield "the run diverged"
    if bound is not None and plan.rank >= bound:
        yield f"the rank is as large as its bound {bound}, raise max_rank"


def _of_the_answer(plan: ClosingPlan, figures: dict[str, float], features: Sequence[str]) -> Iterator[str]:
    """What speaks against an answer on data that is not exact."""
    worst, odd = int(figures["worst_feature"]), figures["odd_columns"]
    if plan.rank and figures["predicted"] < POOR_PREDICTION:
        yield "the model predicts hidden entries hardly better than medians do, lower the rank"
    if plan.rank and _noiseless(plan) > MANY_NOISELESS:
        yield "most features have no noise left although the data is not exact, lower the rank"
    if figures["flagged"] > MANY_FLAGGED:
        yield "more is flagged than gross errors usually are"
    if figures["worst_flagged"] > MANY_IN_FEATURE:
        yield f"{100.0 * figures['worst_flagged']:.0f} % of the entries of {named([worst], features)} are flagged"
    if figures["far_entries"] > MANY_FAR:
        yield "the normal part leaves the range of the data, lower the rank"
    if odd > MANY_ODD:
        yield f"{odd * plan.columns:.0f} samples ({100.0 * odd:.0f} %) are not explained"


def _noiseless(plan: ClosingPlan) -> float:
    """The share of features whose noise stands at the least that is taken for noise."""
    return float(np.mean(plan.noise <= (1.0 + 1e-9) * LEAST_OF_SPREAD * plan.spread))


def _told(reasons: tuple[str, ...]) -> str:
    return "." if not reasons else f". Not to be trusted as it is: {'; '.join(reasons)}."
