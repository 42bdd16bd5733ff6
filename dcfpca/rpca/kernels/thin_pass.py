"""The local passes over few directions: one walk over M each, without writing L down.

A product with so few directions costs what its reading and writing costs, so the walk forms L entry by entry, takes
its pull and adds that to the sums at once. The last pass keeps the pulls: Y = L + ω ψ(R), and L is a thin product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dcfpca.rpca.kernels.loop_selection import fused
from dcfpca.rpca.kernels.scratch_arrays import LINE, Work

if TYPE_CHECKING:
    from dcfpca.rpca.kernels.block_step import Fit, StepPlan

WALKED_WIDTH = 12  # up to so many directions a walk is faster than products
WALKED_COLUMNS = 32  # … over blocks of at least so many columns: in a tall matrix they have few
ROWS = 4  # pulls are multiplied so many rows at a time


@dataclass(frozen=True, slots=True, eq=False)
class Pulled:
    """Y of a block as what it is made of: ω ψ(R) beside L = left · shrunkᵀ."""

    pulls: Work  # rows and columns rounded up
    left: Work
    shrunk: Work
    step: float

    def times(self, right: Work) -> Work:
        """Y · right."""
        padded = np.zeros((right.shape[1], self.pulls.shape[1]), right.dtype)
        padded[:, : right.shape[0]] = self.step * right.T
        product: Work = np.empty((self.pulls.shape[0], right.shape[1]), right.dtype)
        fused().thin_product(self.pulls, padded, product, (0,) * right.shape[1])
        product = product[: self.left.shape[0]]
        product += self.left @ (self.shrunk.T @ right)
        return product


def pulls_room(size: int, plan: StepPlan) -> Work:
    """Room for the pulls of blocks of so many entries, from the beginning of a cache line on."""
    rows, each = plan.U.shape[0], plan.U.itemsize
    most = rounded(rows, ROWS) * rounded(-(-size // max(rows, 1)), LINE // each)
    room = np.empty(most + LINE // each, plan.U.dtype)
    begin = -room.ctypes.data % LINE // each
    return room[begin : begin + most]


def rounded(count: int, unit: int) -> int:
    """Up to a multiple of the unit."""
    return -(-count // unit) * unit


def walked(M: Work, shrunk: Work, plan: StepPlan, room: Work) -> Work:
    """All passes but the last: the coefficients of L that they lead to.

    Directions that do not enter are walked along: for each number of directions there is a loop to compile.
    """
    places, weights, pulls = plan.entering.places, plan.entering.weights, _laid_out(room, 2, shrunk.shape[0])
    for _ in range(plan.passes - 1 if places.size else 0):
        gained = _walk(M, shrunk, plan, pulls)
        shrunk = (shrunk + plan.relaxation * gained[:, places]) * weights
    return shrunk


def first_walk(M: Work, columns: int, plan: StepPlan, room: Work) -> Work:
    """The coefficients, in the entering directions, that one pass from L = 0 over these columns gives."""
    nothing: Work = np.zeros((columns, plan.entering.places.size), plan.U.dtype)
    gained = _walk(M, nothing, plan, _laid_out(room, 2, columns))[:, plan.entering.places]
    return plan.relaxation * gained


def pulled(M: Work, shrunk: Work, fit: Fit, plan: StepPlan, room: Work) -> Pulled:
    """The last pass: fills `fit` and keeps the pulls."""
    pulls = _laid_out(room, rounded(M.shape[0], ROWS), shrunk.shape[0])
    pulls[M.shape[0] :] = 0.0
    fit.L[:, plan.entering.places] = shrunk
    fit.V[:] = fit.L + plan.step * _walk(M, shrunk, plan, pulls)
    return Pulled(pulls, plan.entering.U, shrunk, plan.step)


def _walk(M: Work, shrunk: Work, plan: StepPlan, pulls: Work) -> Work:
    """ψ(R)ᵀ U, and the pulls as far as there is room for them."""
    every: Work = np.zeros((shrunk.shape[0], plan.width), plan.U.dtype)
    every[:, plan.entering.places] = shrunk
    gained = np.empty_like(every)
    fused().pull_through(M, plan.U, every, plan.threshold, plan.a, pulls, gained, (0,) * plan.width)
    return gained


def _laid_out(room: Work, rows: int, columns: int) -> Work:
    across = rounded(columns, LINE // room.itemsize)
    return room[: rows * across].reshape(rows, across)
