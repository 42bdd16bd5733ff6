"""Local passes over few directions: one sweep over M each, which never forms L.

A product with few directions is bound by memory traffic, so the sweep forms L entry by entry, evaluates the
influence ψ(r) and adds it to the sums at once. The last pass keeps the influences: Y = L + ω ψ(R), and L is a thin
product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dcfpca.rpca.kernels.array_types import LINE, WorkArray
from dcfpca.rpca.kernels.loop_selection import active_loops
from dcfpca.rpca.kernels.step_parameters import Coefficients, StepPlan

ROWS = 4  # rows of influences per step of the product


@dataclass(frozen=True, slots=True, eq=False)
class FactoredData:
    """Y of a block in factored form: ω ψ(R) and what it has of L, left · shrunkᵀ."""

    influences: WorkArray  # rows and columns rounded up
    left: WorkArray
    shrunk: WorkArray
    step: float

    def times(self, right: WorkArray) -> WorkArray:
        """Y · right."""
        padded = np.zeros((right.shape[1], self.influences.shape[1]), right.dtype)
        padded[:, : right.shape[0]] = self.step * right.T
        product: WorkArray = np.empty((self.influences.shape[0], right.shape[1]), right.dtype)
        active_loops().thin_product(self.influences, padded, product, (0,) * right.shape[1])
        product = product[: self.left.shape[0]]
        product += self.left @ (self.shrunk.T @ right)
        return product


def influence_buffer(size: int, plan: StepPlan) -> WorkArray:
    """A buffer for the influences of blocks of `size` entries, aligned to a cache line."""
    rows, each = plan.U.shape[0], plan.U.itemsize
    most = round_up(rows, ROWS) * round_up(-(-size // max(rows, 1)), LINE // each)
    room = np.empty(most + LINE // each, plan.U.dtype)
    begin = -room.ctypes.data % LINE // each
    return room[begin : begin + most]


def round_up(count: int, unit: int) -> int:
    """The smallest multiple of the unit that is not below this."""
    return -(-count // unit) * unit


def thin_passes(M: WorkArray, shrunk: WorkArray, plan: StepPlan, room: WorkArray) -> WorkArray:
    """All passes but the last: the coefficients of L that they lead to.

    Directions that do not enter are carried along, because every number of directions needs a loop of its own compiled.
    """
    places, weights, influences = plan.entering.places, plan.entering.weights, _padded_rows(room, 2, shrunk.shape[0])
    for _ in range(plan.passes - 1 if plan.entering.count else 0):
        gained = _pass(M, shrunk, plan, influences)
        shrunk = (shrunk + plan.relaxation * gained[:, places]) * weights
    return shrunk


def thin_first_pass(M: WorkArray, columns: int, plan: StepPlan, room: WorkArray) -> WorkArray:
    """The coefficients, in the entering directions, that one pass from L = 0 over these columns gives."""
    nothing: WorkArray = np.zeros((columns, plan.entering.count), plan.U.dtype)
    gained = _pass(M, nothing, plan, _padded_rows(room, 2, columns))[:, plan.entering.places]
    return plan.relaxation * gained


def last_pass(
    M: WorkArray, shrunk: WorkArray, fit: Coefficients, plan: StepPlan, room: WorkArray, keep: float = 1.0
) -> FactoredData:
    """The last pass: fills `fit` and keeps the influences. Y has `keep` times L."""
    influences = _padded_rows(room, round_up(M.shape[0], ROWS), shrunk.shape[0])
    influences[M.shape[0] :] = 0.0
    _fill(fit, shrunk, _pass(M, shrunk, plan, influences), plan, keep)
    return FactoredData(influences, plan.entering.U, keep * shrunk, plan.step)


def fit_only(M: WorkArray, shrunk: WorkArray, fit: Coefficients, plan: StepPlan, room: WorkArray) -> None:
    """The last pass where nobody asks for Y: only fills `fit`."""
    _fill(fit, shrunk, _pass(M, shrunk, plan, _padded_rows(room, 2, shrunk.shape[0])), plan, keep=1.0)


def _fill(fit: Coefficients, shrunk: WorkArray, gained: WorkArray, plan: StepPlan, keep: float) -> None:
    fit.L[:, plan.entering.places] = shrunk
    fit.V[:] = keep * fit.L + plan.step * gained


def _pass(M: WorkArray, shrunk: WorkArray, plan: StepPlan, influences: WorkArray) -> WorkArray:
    """ψ(R)ᵀ U, and the influences of as many rows as the buffer holds."""
    every: WorkArray = np.zeros((shrunk.shape[0], plan.width), plan.U.dtype)
    every[:, plan.entering.places] = shrunk
    gained = np.empty_like(every)
    active_loops().influence_pass(M, plan.U, every, plan.threshold, plan.a, influences, gained, (0,) * plan.width)
    return gained


def _padded_rows(room: WorkArray, rows: int, columns: int) -> WorkArray:
    across = round_up(columns, LINE // room.itemsize)
    return room[: rows * across].reshape(rows, across)
