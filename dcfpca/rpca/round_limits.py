"""How many rounds the stages around a fit take, and the bound on a rank that is to be found. Loads no numerics."""

from __future__ import annotations

COUNT_ROUNDS = 1
BEFORE_UNITS = frozenset({"count", "median", "deviation"})
"""The stages of a scaled run before sites know the medians and scales over all of them."""
MEDIAN_DIGITS = (5, 8)  # most rounds for medians, with up to WHOLE features and with more: 36 bits of the mantissa
DEVIATION_DIGITS = (2, 3)  # … for scales, where 7 are enough
SCALING_ROUNDS = MEDIAN_DIGITS[1] + DEVIATION_DIGITS[1]
BOUND_ROUNDS = 6  # refinement rounds at the full width, with entries hidden
MOST_ROUNDS = 16  # at the chosen rank
FEW, MOST = 10, 32
WIDEST_CLOSING = 512
"""Closing rounds exchange a scalar for each pair of directions, so that their number is bounded."""
WHOLE = 256
"""With at most this many features the whole covariance is summed; with more, entries are judged by the directions of
L."""
COVARIANCE_ROUNDS = 2  # the first from wrapped scores; a third one moves correlations by less than .01
CLOSING_ROUNDS = BOUND_ROUNDS + 1 + MOST_ROUNDS + 1 + COVARIANCE_ROUNDS + 2
"""Beside them a round each for validation, shape, null and check."""


def automatic_bound(rows: int) -> int:
    """The largest rank tried when none is given: half of few rows, 10 of some, a sixteenth of many, at most 32.

    With a larger bound, a run on noisy data of many features takes long to converge; an exact rank above the bound is
    reported as a bound reached.
    """
    return max(1, min(rows // 2, max(FEW, rows // 16), MOST)) if rows else 0
