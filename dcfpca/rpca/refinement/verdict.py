"""Whether the answer of a run can be trusted, and why not, in one sentence; from sums that everybody has."""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.method import FloatArray, Outcome, Verdict
from dcfpca.rpca.refinement.closing_plan import VERDICT, ClosingPlan, FitEnding
from dcfpca.rpca.refinement.size_histogram import RESIDUAL_BINS, count_above

POOR_PREDICTION = 0.1  # of the hidden entries' spread
MANY_FLAGGED, MANY_IN_FEATURE = 0.15, 0.2
MANY_FAR, MANY_ODD = 1e-3, 0.05
UNEXPLAINED = 0.95  # residuals of a feature as wide as this share of its spread


def figures_of(plan: ClosingPlan, counts: FloatArray, null_counts: FloatArray) -> FloatArray:
    """The figures named in VERDICT, from the counts of the null round."""
    figures = plan.verdict.copy()
    entries = np.maximum(counts.sum(axis=1), 1e-300)
    by_feature = count_above(counts, plan.noise, plan.cut * plan.null_scale, RESIDUAL_BINS)
    columns, far, _, odd = null_counts
    wide = plan.null_scale >= UNEXPLAINED * plan.spread
    found = {
        "flagged": float(by_feature.sum() / entries.sum()),
        "worst_flagged": float((by_feature / entries).max(initial=0.0)),
        "worst_feature": float(np.argmax(by_feature / entries)),
        "unexplained_features": float(np.count_nonzero(wide)) if plan.rank else 0.0,
        "far_entries": float(far / max(columns, 1e-300)),
        "odd_columns": float(odd / max(columns, 1e-300)),
    }
    for name, value in found.items():
        figures[VERDICT.index(name)] = value
    return figures


def verdict_of(plan: ClosingPlan, outcome: Outcome, bound: int | None = None) -> Verdict:
    """The verdict on a finished run; `bound` is the bound on the rank, where the rank was to be found."""
    figures = dict(zip(VERDICT, (float(value) for value in plan.verdict), strict=True))
    reasons = tuple(reason for reason in _reasons(plan, outcome, bound, figures) if reason)
    return Verdict(not reasons, _found(plan, figures) + _told(reasons), reasons)


def _found(plan: ClosingPlan, figures: dict[str, float]) -> str:
    if plan.ending is FitEnding.EXACT:
        return f"Exact: rank {plan.rank} and sparse outliers explain the data to the tolerance"
    share = f"{100.0 * figures['flagged']:.1f} % of the entries are flagged"
    if plan.rank == 0:
        return f"Rank 0: no direction predicts hidden entries better than the features' medians do; {share}"
    return f"Rank {plan.rank} predicts {100.0 * figures['predicted']:.0f} % of the hidden entries' spread; {share}"


def _reasons(plan: ClosingPlan, outcome: Outcome, bound: int | None, figures: dict[str, float]) -> list[str]:
    exact, predicted = plan.ending is FitEnding.EXACT, figures["predicted"]
    return [
        "the run stopped at its round limit" if outcome is Outcome.OUT_OF_ROUNDS else "",
        "the run diverged" if outcome is Outcome.DIVERGED else "",
        f"the rank is as large as its bound {bound}, raise max_rank"
        if bound is not None and plan.rank >= bound
        else "",
        "the model predicts hidden entries hardly better than medians do, lower the rank"
        if plan.rank and not exact and predicted < POOR_PREDICTION
        else "",
        "more is flagged than gross errors usually are" if figures["flagged"] > MANY_FLAGGED and not exact else "",
        f"feature {figures['worst_feature']:.0f} has {100.0 * figures['worst_flagged']:.0f} % of its entries flagged"
        if figures["worst_flagged"] > MANY_IN_FEATURE and not exact
        else "",
        "the normal part leaves the range of the data" if figures["far_entries"] > MANY_FAR and not exact else "",
        f"{100.0 * figures['odd_columns']:.0f} % of the samples are not explained"
        if figures["odd_columns"] > MANY_ODD and not exact
        else "",
    ]


def _told(reasons: tuple[str, ...]) -> str:
    return "." if not reasons else f". Not to be trusted as it is: {'; '.join(reasons)}."
