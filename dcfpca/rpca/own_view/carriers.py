"""Which shared directions a site's columns move along, and whether the shared model serves the site at all.

Both are known only as sums over sites: a projector, whose sum gives for every direction how many sites carry it, and a
vote. A site adds at most one to either.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.calibration.expectation import expect
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.own_view.own_model import CALMEST, COLUMNS_EACH, EFFICIENCY, margins, model_alone
from dcfpca.rpca.own_view.own_view import few_values
from dcfpca.rpca.refinement.alternating_fit import ColumnModel, fit_columns
from dcfpca.rpca.refinement.closing_plan import ClosingPlan

MOVES = 2.0  # noises, as a variance: less is no movement
FEWEST_COLUMNS = 10
WEAK_RIDGE = 1e-6  # of a direction's ridge: other sites must not be able to hold this site's columns still
FAILS = 2.0  # times the error of a model of the site's own
FEWEST_HIDDEN = 30
CAP, NEAR = 3.0, 5.0  # as in stage `validate`, in the site's own deviations


def carried(plan: ClosingPlan, M: FloatArray) -> FloatArray:
    """The projector (width × width, in the coordinates of U) onto the directions that these columns move along."""
    rank, width = plan.rank, plan.U.shape[1]
    projector = np.zeros((width, width))
    if rank == 0 or M.shape[1] < FEWEST_COLUMNS:
        return projector
    model = plan.model
    V = fit_columns(ColumnModel(model.U, model.centre, model.noise, WEAK_RIDGE * model.ridge), M, None)
    values, vectors = np.linalg.eigh((model.U.T * model.noise**2) @ model.U)
    Y = (V - np.median(V, axis=0)) @ (vectors / np.sqrt(values)) @ vectors.T
    calm = np.argsort(np.sum(Y**2, axis=1), kind="stable")[: int(CALMEST * len(Y))]
    variance, along = np.linalg.eigh(Y[calm].T @ Y[calm] / len(calm))
    moved = along[:, variance > MOVES * (1.0 + 2.0 * np.sqrt(2.0 / (EFFICIENCY * len(Y))))]
    projector[:rank, :rank] = moved @ moved.T
    return projector


def error_ratio(plan: ClosingPlan, M: FloatArray, hidden: NDArray[np.bool_]) -> float:
    """The error of the shared model in predicting hidden entries, over that of a model of the site's own that does not
    know them either; 0 if the site has too few columns for one."""
    assert plan.calibration is not None
    shown = np.where(hidden, np.nan, M)
    middle, deviation = margins(shown)
    judged = hidden & (np.abs(M - middle[:, None]) <= NEAR * deviation[:, None])
    if M.shape[1] < COLUMNS_EACH * len(M) or np.count_nonzero(judged) < FEWEST_HIDDEN:
        return 0.0
    alone = expect(model_alone(shown, few_values(shown)), shown).score
    shape, model = plan.calibration.shape, plan.calibration.model
    shared = shape.backward(expect(model, shape.forward(shown)).score)
    errors = [np.minimum(np.abs(M - made) / deviation[:, None], CAP)[judged].mean() for made in (shared, alone)]
    return float(errors[0] / max(errors[1], np.finfo(np.float64).tiny))
