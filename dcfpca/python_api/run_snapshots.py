"""Runs, rounds and participants as typed values for programs. Pure."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from dcfpca.v1 import admin_pb2 as pb

Taken = TypeVar("Taken")


@dataclass(frozen=True, slots=True)
class Round:
    """A finished round. `change`, `noise` and `threshold` are NaN where the method has no such figure."""

    number: int
    attempt: int
    seconds: float
    change: float
    rank: int
    noise: float
    threshold: float
    bytes_received: int
    bytes_sent: int
    survivors: tuple[str, ...]
    dropouts: tuple[str, ...]
    singular_values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the answer of a finished run can be trusted, why not, and what to do next."""

    sound: bool
    sentence: str
    reasons: tuple[str, ...]
    advice: str


@dataclass(frozen=True, slots=True)
class RankError:
    """The error of a rank on hidden entries, over that of the features' medians: below 1 is better than medians."""

    rank: int
    error: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """A site that the run waits for, since when, and the last sentence it sent about the run."""

    participant: str
    since: datetime
    connected: bool
    said: str


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A run at one moment. `refusals` are reasons by participant; `rounds` counts those that were held."""

    run_id: str
    status: str
    reason: str
    phase: str
    rounds: int
    enrolled: tuple[str, ...]
    refusals: Mapping[str, tuple[str, ...]]
    awaited: tuple[str, ...]
    waiting: tuple[Waiting, ...]
    deadline: datetime | None
    verdict: Verdict | None
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Participant:
    """A participant that has connected at some time; `state` is connected, away or revoked."""

    name: str
    state: str
    software: str
    last_seen: datetime | None
    certificate_days: int
    rows: int
    runs: tuple[str, ...]


def round_of(view: pb.RoundView) -> Round:
    """A finished round."""
    return _of(Round, view, number=view.round)


def snapshot_of(view: pb.RunView) -> RunSnapshot:
    """The run of a view."""
    return _of(
        RunSnapshot,
        view,
        rounds=view.rounds_held,
        enrolled=tuple(one.participant for one in view.enrolled),
        refusals={one.participant: tuple(one.reasons) for one in view.refusals if one.what == "enrolment"},
        waiting=tuple(_of(Waiting, one, since=_moment(one.since_ms)) for one in view.waiting),
        deadline=_moment(view.deadline_ms),
        verdict=verdict_of(view),
        spec=json.loads(view.spec or b"{}"),
    )


def verdict_of(view: pb.RunView) -> Verdict | None:
    """The verdict; None until the run has finished."""
    return _of(Verdict, view.verdict) if view.HasField("verdict") else None


def rank_curve_of(view: pb.RunView) -> tuple[RankError, ...]:
    """The curve that the rank was chosen by; empty where no such round was held."""
    return tuple(_of(RankError, one) for one in view.rank_curve)


def participant_of(view: pb.ParticipantView) -> Participant:
    """A participant."""
    return _of(Participant, view, last_seen=_moment(view.last_seen_ms))


def _of(kind: Callable[..., Taken], message: Any, **given: Any) -> Taken:
    """One of this kind, from the fields of a message that have its names, and those that are given."""
    for name in inspect.signature(kind).parameters.keys() - given.keys():
        value = getattr(message, name)
        given[name] = value if isinstance(value, str | int | float) else tuple(value)
    return kind(**given)


def _moment(milliseconds: int) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None
