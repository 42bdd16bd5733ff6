"""What stays in memory of a run that has ended; everything else is read from the store when somebody asks."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from aggregator.run.state import Run, Status
from dcfpca.spec import RunSpec

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that is over. `data` is what its spec says of the data; `summed`: sums were opened, or may yet be."""

    run_id: str
    status: Status
    created_at: float
    ended_at: float
    cohort: frozenset[str]
    invited: frozenset[str]
    data: tuple[str, int, str]
    summed: bool


def remembered(run: Run, spec: RunSpec) -> EndedRun:
    """The part of a run that stays in memory. Equal values are shared, so that thousands of ended runs take little."""
    return EndedRun(
        run_id=run.run_id,
        status=run.status,
        created_at=run.created_at,
        ended_at=run.ended_at,
        cohort=_one_copy(frozenset(run.cohort)),
        invited=_one_copy(frozenset(spec.participants)),
        data=_one_copy(data_of(spec)),
        summed=run.attempt is not None and (not run.status.over or run.attempt.ref.round > 0),
    )


def data_of(spec: RunSpec) -> tuple[str, int, str]:
    """What two runs must share to be about the same columns: a difference proves that they are not."""
    return spec.aggregation, spec.rows, spec.features_sha256


@lru_cache(maxsize=64)
def _one_copy(value: T) -> T:
    return value
