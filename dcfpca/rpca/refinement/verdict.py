"""Says in one sentence whether the answer of a run can be trusted, and if not, why; from sums that everybody has.

Its notes say what a reader should know about features: which cannot have a low-rank part, and which stay unexplained.
The shares are of the pooled counts of all sites, so a feature that is constant at one site alone is not named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.calibration.calibration import CONSTANT, ONE_VALUE
from dcfpca.rpca.method import FloatArray, Outcome, Verdict
from dcfpca.rpca.refinement.closing_plan import VERDICT, ClosingPlan, FitEnding
from dcfpca.rpca.refinement.identifiability import MOSTLY, local_features, undetermined_share
from dcfpca.rpca.refinement.noise_scale import LEAST_OF_SPREAD

POOR_PREDICTION = 0.1  # of the hidden entries' spread
MANY_FLAGGED, MANY_IN_FEATURE = 0.15, 0.2
MANY_ORDINARY = 0.2  # of the flagged entries: each is said to be ordinary with a lower probability than this
MANY_FAR, MANY_ODD = 1e-3, 0.05
FEWEST_TOLD = 5  # samples: a smaller count over all sites is published as none, because it might point at persons
MANY_NOISELESS = 0.5  # of the features
UNDETERMINED = 0.1  # samples that are expected to have another split, where outliers lie at random
TWO_VALUED = 0.9
SPIKY_SHARE, FEWEST_SPIKY = 2 / 3, 20
UNEXPLAINED = 0.95  # residuals of a feature as wide as this share of its spread
MOST_NAMED = 8


class Reason(NamedTuple):
    """A reason to doubt an answer, and the key of the spec, as key=value, with which a run like it may do better."""

    text: str
    change: str = ""


class FlagCounts(NamedTuple):
    """Per feature: flagged entries, those far off in an exact run, and all."""

    flagged: FloatArray
    outlying: FloatArray
    entries: FloatArray
    all_flagged: float  # of all features: more than of each, where small counts were merged


def figures_of(plan: ClosingPlan, flags: FlagCounts, null_counts: FloatArray, on_few: float = 0.0) -> FloatArray:
    """The figures named in VERDICT, from the counts of the null round."""
    figures = plan.verdict.copy()
    by_feature, entries = flags.flagged, np.maximum(flags.entries, 1e-300)
    shares = (flags.outlying if plan.ending is FitEnding.EXACT else by_feature) / entries
    columns, far, _, odd = null_counts  # of those counted, which may be a sample
    found = {
        "flagged": float(flags.all_flagged / entries.sum()),
        "flags": float(np.rint(flags.all_flagged * plan.columns / max(columns, 1e-300))),
        "worst_flagged": float(shares.max(initial=0.0)),
        "worst_feature": float(np.argmax(shares)),
        "unexplained_features": float(np.count_nonzero(unexplained(plan))),
        "far_entries": float(far / max(columns, 1e-300)),
        "odd_columns": float(odd / max(columns, 1e-300)) if np.rint(odd) >= FEWEST_TOLD else 0.0,
        "on_few": on_few,
    }
    for name, value in found.items():
        figures[VERDICT.index(name)] = value
    return figures


def verdict_of(plan: ClosingPlan, outcome: Outcome, bound: int | None = None, features: Sequence[str] = ()) -> Verdict:
    """The verdict on a finished run; `bound` is the bound on the rank, where the rank was to be found."""
    figures = dict(zip(VERDICT, (float(value) for value in plan.verdict), strict=True))
    exact, of_the_run = plan.ending is FitEnding.EXACT, (*_of_the_run(plan, outcome, bound),)
    lower = _lower_rank(plan, bound)
    against = (*(_other_splits(plan, figures, features) if exact else _of_the_answer(plan, figures, features, lower)),)
    reasons, found = tuple(one.text for one in (*of_the_run, *against)), _found(plan, figures, unique=not against)
    checked = not reasons and (exact or figures["ordinary_most"] > 0.0)
    # If one reason asks for a larger rank and another for a smaller one, the reason about the answer wins over the one
    # about the bound.
    changes = tuple(dict.fromkeys(one.change for one in against if one.change))
    changes = changes or tuple(one.change for one in of_the_run if one.change)
    notes = (*feature_notes(plan, features), *_spiky(plan, figures, features))
    return Verdict(not reasons, found + _against(reasons), reasons, notes, checked, changes)


def _spiky(plan: ClosingPlan, figures: dict[str, float], features: Sequence[str]) -> Iterator[str]:
    """The one feature that makes most of the flags, if one does; sites set its findings aside."""
    rows = plan.subspace.U.shape[0]
    share = figures["worst_flagged"] / max(rows * figures["flagged"], 1e-300)  # as if all had as many entries
    if plan.ending is not FitEnding.EXACT and figures["flags"] >= FEWEST_SPIKY and rows > 2 and share > SPIKY_SHARE:
        name = named([int(figures["worst_feature"])], features)
        out = "exclude = […] in [data] at the sites leaves it out"
        yield f"Has most of the flags, and its findings come last ({out}): {name}."


def _lower_rank(plan: ClosingPlan, bound: int | None) -> Reason:
    """What to do about a rank that is too large; nothing at rank 1, the lowest that a run can ask for."""
    key = "rank" if bound is None else "max_rank"
    return Reason(", lower the rank", f"{key}={plan.rank - 1}") if plan.rank > 1 else Reason("")


def _found(plan: ClosingPlan, figures: dict[str, float], unique: bool) -> str:
    if plan.ending is FitEnding.EXACT and unique:
        return f"Exact: rank {plan.rank} and sparse outliers explain the data to the tolerance"
    if plan.ending is FitEnding.EXACT:
        return f"Rank {plan.rank} and outliers explain the data to the tolerance, but so do other splits"
    share = _flagged(figures)
    if plan.rank == 0:
        return f"Rank 0: no direction predicts hidden entries better than the features' medians do; {share}"
    return f"Rank {plan.rank} predicts {100.0 * figures['predicted']:.0f} % of the hidden entries' spread; {share}"


def _flagged(figures: dict[str, float]) -> str:
    """How much is flagged. A site with fewer than `min_cell` flags counts none, so a count of none may hide a few."""
    if figures["flags"] < 1.0:
        return "few or no entries are flagged"
    percent = 100.0 * figures["flagged"]
    return f"{percent:.{1 if percent >= 0.1 else 2}f} % of the entries are flagged{_ordinary(figures)}"


def _ordinary(figures: dict[str, float]) -> str:
    """How many of the flagged entries are expected to be ordinary, or that it was not checked."""
    flags = figures["flags"]
    if figures["ordinary_most"] <= 0.0:
        return "; how many of them are ordinary was not checked"
    some, most = (min(figures[name], flags) for name in ("ordinary", "ordinary_most"))
    count = f"some {some:.0f}" if some >= 0.5 else "none"
    return f", of which {count} (up to {most:.0f} of {flags:.0f}) are expected to be ordinary"


def _of_the_run(plan: ClosingPlan, outcome: Outcome, bound: int | None) -> Iterator[Reason]:
    if outcome is Outcome.OUT_OF_ROUNDS:
        yield Reason("the run stopped at its round limit, raise rounds")
    if outcome is Outcome.DIVERGED:
        yield Reason("the run diverged")
    # With as many directions as there are other features an entry cannot be predicted: there is no larger rank to find.
    most = plan.subspace.U.shape[0] - 1
    if bound is not None and bound <= plan.rank and bound < most:
        larger = f"max_rank={min(2 * bound, most)}"
        yield Reason(f"the rank is as large as its bound {bound}, raise max_rank", larger)


def _other_splits(plan: ClosingPlan, figures: dict[str, float], features: Sequence[str]) -> Iterator[Reason]:
    """What makes an exact split one of several."""
    worst, odd = figures["worst_flagged"], figures["odd_columns"]
    if worst > MOSTLY:
        feature = named([int(figures["worst_feature"])], features)
        yield Reason(f"{100.0 * worst:.0f} % of the entries of {feature} are outliers")
    if odd > 0.0:
        yield Reason(f"most entries of {odd * plan.columns:.0f} samples are outliers")
    basis = np.linalg.qr(plan.subspace.U)[0]
    if plan.rank and plan.columns * undetermined_share(basis, figures["flagged"]) > UNDETERMINED:
        yield Reason("samples may have outliers in nearly all features that tell one of their coefficients")
    if local := local_features(basis).tolist():
        yield Reason(f"a direction rests on {named(local, features)} alone, where it cannot be told from outliers")
    elif 0.0 < figures["on_few"] < 1.0:
        features_of_it = figures["on_few"] * plan.subspace.U.shape[0]
        yield Reason(
            f"a direction rests on {features_of_it:.0f} features of few samples alone, "
            "whose entries may just as well be outliers"
        )
    if figures["on_few"] >= 1.0:
        yield Reason("a direction rests on few samples alone, whose entries may just as well be outliers")


def _of_the_answer(
    plan: ClosingPlan, figures: dict[str, float], features: Sequence[str], lower: Reason
) -> Iterator[Reason]:
    """Reasons to doubt an answer on data that is not exact; `lower` is what to do where the rank is too large."""
    worst, odd = int(figures["worst_feature"]), figures["odd_columns"]
    if plan.rank and figures["predicted"] < POOR_PREDICTION:
        yield Reason(f"the model predicts hidden entries hardly better than medians do{lower.text}", lower.change)
    if figures["failing"] > 0.0:
        yield Reason(
            "at more than half of the sites, a model of the site alone predicts hidden entries more than twice as well "
            "as the shared one"
        )
    if plan.rank and _noiseless(plan) > MANY_NOISELESS:
        yield Reason(f"most features have no noise left, although the data is not exact{lower.text}", lower.change)
    if figures["flagged"] > MANY_FLAGGED:
        yield Reason("more entries are flagged than is usual for gross errors")
    if figures["worst_flagged"] > MANY_IN_FEATURE:
        share = f"{100.0 * figures['worst_flagged']:.0f} %"
        others = json.dumps([name for row, name in enumerate(features) if row != worst], ensure_ascii=False)
        away = ", leave it out" if features else ""
        yield Reason(
            f"{share} of the entries of {named([worst], features)} are flagged{away}",
            f"features={others}" if features else "",
        )
    if figures["ordinary"] > MANY_ORDINARY * figures["flags"] >= MANY_ORDINARY:
        yield Reason(
            f"samples drawn from the fit have {figures['ordinary']:.0f} ordinary entries flagged "
            f"where {figures['flags']:.0f} entries are flagged in the data"
        )
    if figures["far_entries"] > MANY_FAR:
        yield Reason(f"the normal part leaves the range of the data{lower.text}", lower.change)
    if odd > MANY_ODD:
        yield Reason(f"{odd * plan.columns:.0f} samples ({100.0 * odd:.0f} %) are not explained")


def _noiseless(plan: ClosingPlan) -> float:
    """The share of features whose noise is at its lower limit."""
    return float(np.mean(plan.noise <= (1.0 + 1e-9) * LEAST_OF_SPREAD * plan.spread))


def _against(reasons: tuple[str, ...]) -> str:
    return "." if not reasons else f". Not to be trusted as it is: {'; '.join(reasons)}."


def feature_notes(plan: ClosingPlan, features: Sequence[str] = ()) -> tuple[str, ...]:
    """A sentence for each kind of feature that there is; none where the run held no round that counts values."""
    constant = plan.one_value >= CONSTANT
    dominated = ~constant & (plan.one_value > ONE_VALUE)
    two_valued = ~constant & ~dominated & (plan.two_values > TWO_VALUED)
    graded = grouped = np.zeros_like(constant)
    if plan.calibration is not None:
        graded, grouped = plan.calibration.shape.graded(), plan.calibration.shape.grouped() & ~plan.few
    kinds = {
        "Constant, so of no use in predicting the others": constant,
        "Nearly always one value, so only values far from all others are flagged": dominated,
        "Two values; neither is flagged for being rare": two_valued,
        "Few values, judged by their ranks": graded & ~constant & ~dominated & ~two_valued,
        "Values in separate groups, which one centre and scale describe poorly": grouped & ~graded,
        "Not explained by the other features": unexplained(plan) & ~constant & ~dominated,
    }
    return tuple(
        f"{text}: {named(np.flatnonzero(which).tolist(), features)}." for text, which in kinds.items() if which.any()
    )


def unexplained(plan: ClosingPlan) -> NDArray[np.bool_]:
    """Features whose residuals are as wide as their values; none with rank 0, where all are."""
    return (plan.null_scale >= UNEXPLAINED * plan.spread) & (plan.rank > 0)


def named(rows: Sequence[int], features: Sequence[str] = ()) -> str:
    """The features of these rows, by name or number; of many only the first."""
    shown = [features[row] if features else str(row) for row in rows[:MOST_NAMED]]
    listed = ", ".join(shown) + (f" and {len(rows) - MOST_NAMED} more" if len(rows) > MOST_NAMED else "")
    return listed if features else f"feature {listed} (counted from 0)"
