"""What a reader of a verdict should know of features: which cannot carry a low-rank part, which stay unexplained.

The shares are of the pooled counts of all sites, so a feature that is constant at one site alone is not named.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.refinement.closing_plan import ClosingPlan
from dcfpca.rpca.refinement.null import DOMINATED

CONSTANT, TWO_VALUED = 0.999, 0.9
UNEXPLAINED = 0.95  # residuals of a feature as wide as this share of its spread
MOST_NAMED = 8


def feature_notes(plan: ClosingPlan, features: Sequence[str] = ()) -> tuple[str, ...]:
    """A sentence for each kind of feature that there is; none where the run held no round that counts values."""
    constant = plan.one_value >= CONSTANT
    dominated = ~constant & (plan.one_value > DOMINATED)
    two_valued = ~constant & ~dominated & (plan.two_values > TWO_VALUED)
    kinds = {
        "Constant, so of no use to the others": constant,
        "One value in more than 80 % of the entries, so only values far from all others are flagged": dominated,
        "Two values, which a low-rank part follows poorly": two_valued,
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
    told = ", ".join(shown) + (f" and {len(rows) - MOST_NAMED} more" if len(rows) > MOST_NAMED else "")
    return told if features else f"feature {told} (counted from 0)"
