"""The stories of the flagged entries of a result, by the model that flagged them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import Columns, FloatArray
from participant.findings.causes import MOST_EXPLAINED, MOST_SAMPLED, Cause, Flagged, explain
from participant.results.block_files import FlaggedEntries
from participant.results.scoring_model import ScoringModel


def explain_flags(
    judge: ScoringModel, data: Columns, entries: FlaggedEntries, features: Sequence[str]
) -> list[Cause | None]:
    """A story or None for each flagged entry, in the order of `entries`."""
    deviation = np.maximum(judge.deviation, np.finfo(float).tiny)
    z = np.where(np.isnan(entries.z), entries.off / deviation[entries.rows], entries.z)
    parts = (entries.rows, entries.columns, entries.expected, z)
    kept = _looked_at(z, entries.columns)
    own = zip(*(part[kept] for part in parts), strict=True)
    flagged = [Flagged(int(row), int(column), *map(float, rest)) for row, column, *rest in own]
    names = features or [f"no. {row}" for row in range(data.shape[0])]
    found = list[Cause | None]([None] * len(z))
    told = explain(data, lambda M: judge.transform(M).scored.z, deviation, names, flagged)
    for place, cause in zip(kept, told, strict=True):
        found[place] = cause
    return found


def _looked_at(z: FloatArray, columns: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
    """The flagged entries that stories are about, and those that they lean on: of the same samples, of the samples
    before, and of the first samples, by which features are known."""
    told = columns[np.argsort(-np.abs(z), kind="stable")[:MOST_EXPLAINED]]
    return np.flatnonzero((columns < MOST_SAMPLED) | np.isin(columns, np.concatenate([told, told - 1])))
