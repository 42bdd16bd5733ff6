"""The null of a finished run, as the site keeps it: by it the run's own samples were flagged, and new ones are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dcfpca.errors import UnusableState
from dcfpca.rpca.method import FloatArray, TensorMessage
from dcfpca.rpca.refinement.closing_plan import CHECK, FORM, NULL, ClosingPlan, of_form
from dcfpca.rpca.refinement.scoring import TransformedColumns, transform_columns
from dcfpca.rpca.scaling import split_broadcast

CONSENSUS = "consensus.npz"
"""The final broadcast of the run and its stage."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoringModel:
    """The plan of the last closing round, and the centre and scale of features by which it reads the data."""

    plan: ClosingPlan
    centre: FloatArray
    scale: FloatArray

    @property
    def deviation(self) -> FloatArray:
        """The null's deviation of each feature, in the units of the data."""
        return self.plan.null_scale * self.scale

    def transform(self, M: FloatArray) -> TransformedColumns:
        """New columns in the units of the data, fitted and scored; L comes in the units of the data, too."""
        found = transform_columns(self.plan, (M - self.centre[:, None]) / self.scale[:, None])
        expected = self.centre[:, None] + self.scale[:, None] * found.scored.others.value
        scored = replace(found.scored, others=replace(found.scored.others, value=expected))
        return TransformedColumns(found.V, self.centre[:, None] + self.scale[:, None] * found.L, scored)


def scoring_model(broadcast: TensorMessage, stage: str, *, scaled: bool, form: int = FORM) -> ScoringModel | None:
    """The model in a final broadcast of this form; None where the run ended without the round that has it."""
    if stage not in (NULL, CHECK):
        return None
    rows = broadcast.tensor.shape[0]
    centre, scale = np.zeros(rows), np.ones(rows)
    if scaled:
        broadcast, centre, scale = split_broadcast(broadcast, rows)
    return ScoringModel(ClosingPlan.of(of_form(broadcast, form)), centre, scale)


def load_scoring_model(directory: Path, run_id: str, *, scaled: bool) -> ScoringModel | None:
    """The model of a result; None where the run had none, or was written by an earlier version."""
    path = directory / run_id / CONSENSUS
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as kept:
            message = TensorMessage(kept["tensor"], kept["scalars"])
            form = int(kept["form"]) if "form" in kept else 1
            return scoring_model(message, str(kept["stage"]), scaled=scaled, form=form)
    except Exception as error:  # numpy and zipfile raise many kinds of error on damaged files
        hint = "restore the result from a backup, or take part in the run again"
        raise UnusableState(f"{path} is damaged", hint) from error
