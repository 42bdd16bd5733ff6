"""The stories of the flagged entries of a result, by the model that flagged them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dcfpca.rpca.method import Columns
from participant.findings.causes import Cause, Flagged, explain
from participant.results.block_files import FlaggedEntries
from participant.results.scoring_model import ScoringModel


def explain_flags(
    judge: ScoringModel, data: Columns, entries: FlaggedEntries, features: Sequence[str]
) -> list[Cause | None]:
    """A story or None for each flagged entry, in the order of `entries`."""
    deviation = np.maximum(judge.deviation, np.finfo(float).tiny)
    z = np.where(np.isnan(entries.z), entries.off / deviation[entries.rows], entries.z)
    parts = (entries.rows, entries.columns, entries.expected + entries.off, entries.expected, z)
    flagged = [Flagged(int(row), int(column), *map(float, rest)) for row, column, *rest in zip(*parts, strict=True)]
    names = features or [f"no. {row}" for row in range(data.shape[0])]
    return explain(data, lambda M: judge.transform(M).scored.z, deviation, names, flagged)
