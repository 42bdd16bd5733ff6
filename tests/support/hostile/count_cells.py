"""Which numbers of an update or a sum are counts of entries, read without the help of the code that makes them; and
the patients of the review that found single ones in them."""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.calibration.empirical_null import SIZE_BINS
from dcfpca.rpca.calibration.sample_test import COUNTS as ODDNESS_COUNTS
from dcfpca.rpca.method import Consensus, FloatArray, TensorMessage
from dcfpca.rpca.refinement.closing_plan import CLOSING, ClosingPlan
from dcfpca.rpca.refinement.noise_scale import DISTANCE_BINS
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.round_plan import RoundPlan


def counts_of(method: Method, told: Consensus, sent: TensorMessage) -> FloatArray:
    """All counts in an answer to this consensus, or in the sum of answers; of a stage that counts nothing, none."""
    rows, width = method.solver.rows, method.solver.width
    broadcast = told.broadcast
    if method.scaled and told.stage not in ("median", "deviation"):
        broadcast = TensorMessage(broadcast.tensor, broadcast.scalars[: -2 * rows])
    n = ClosingPlan.of(broadcast).columns if told.stage in CLOSING else 1.0
    match told.stage:
        case "median" | "deviation" | "shape":
            return sent.tensor.ravel()
        case "open" if sent.scalars.size > 2:
            return sent.scalars
        case "fit" if sent.scalars.size == 24:
            return sent.scalars[4:] * RoundPlan.of(broadcast).columns * rows
        case "refine":
            calm_and_along = sent.scalars[2 + width + width * (width + 1) // 2 :] * n
            return np.concatenate([(sent.tensor[:, width + 2 :] * n).ravel(), calm_and_along])
        case "null":
            columns, far, entries, odd = sent.scalars[:4] * n
            counted = sent.scalars[4 + width * (width + 1) // 2 :] * n  # after the products of V, which are no counts
            by_column, sizes = np.split(counted, [DISTANCE_BINS.count + ODDNESS_COUNTS])
            assert sizes.size == SIZE_BINS.count
            head = [columns, far * rows, entries * rows, odd]
            return np.concatenate([(sent.tensor * n).ravel(), head, by_column, sizes * rows])
        case "validate":
            return sent.scalars[:1] * n
        case _:
            return np.zeros(0)


def few_in_a_cell(method: Method, told: Consensus, sent: TensorMessage, least: int) -> int:
    """How many counts are about somebody, and about fewer than `least`."""
    counts = np.rint(counts_of(method, told, sent))
    return int(np.count_nonzero((counts > 0.0) & (counts < least)))


def patients(seed: int = 3) -> list[FloatArray]:
    """Three sites of 150 persons and 40 features, of other means and spreads, with gross errors."""
    rng = np.random.default_rng(seed)
    spread, level = 10.0 ** rng.uniform(-2, 3, 40), 10.0 ** rng.uniform(-1, 3, 40)
    data = level[:, None] + spread[:, None] * (
        rng.normal(size=(40, 3)) @ rng.normal(size=(3, 450)) + rng.normal(size=(40, 450))
    )
    wrong = rng.random(data.shape) < 0.01
    data[wrong] += 30.0 * np.broadcast_to(spread[:, None], data.shape)[wrong]
    return np.split(data, 3, axis=1)
