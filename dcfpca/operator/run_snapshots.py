"""Runs, rounds and participants as typed values for programs. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dcfpca.v1 import admin_pb2 as pb


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
    return Round(
        number=view.round,
        attempt=view.attempt,
        seconds=view.seconds,
        change=view.change,
        rank=view.rank,
        noise=view.noise,
        threshold=view.threshold,
        bytes_received=view.bytes_received,
        bytes_sent=view.bytes_sent,
        survivors=tuple(view.survivors),
        dropouts=tuple(view.dropouts),
        singular_values=tuple(view.singular_values),
    )


def snapshot_of(view: pb.RunView) -> RunSnapshot:
    """The run of a view."""
    return RunSnapshot(
        run_id=view.run_id,
        status=view.status,
        reason=view.reason,
        phase=view.phase,
        rounds=view.rounds_held,
        enrolled=tuple(one.participant for one in view.enrolled),
        refusals={one.participant: tuple(one.reasons) for one in view.refusals if one.what == "enrolment"},
        awaited=tuple(view.awaited),
        waiting=tuple(_waiting(one) for one in view.waiting),
        deadline=_moment(view.deadline_ms),
        verdict=verdict_of(view),
        spec=json.loads(view.spec or b"{}"),
    )


def verdict_of(view: pb.RunView) -> Verdict | None:
    """The verdict; None until the run has finished."""
    if not view.HasField("verdict"):
        return None
    told = view.verdict
    return Verdict(told.sound, told.sentence, tuple(told.reasons), told.advice)


def rank_curve_of(view: pb.RunView) -> tuple[RankError, ...]:
    """The curve that the rank was chosen by; empty where no such round was held."""
    return tuple(RankError(one.rank, one.error, one.standard_error) for one in view.rank_curve)


def participant_of(view: pb.ParticipantView) -> Participant:
    """A participant."""
    return Participant(
        view.name,
        view.state,
        view.software,
        _moment(view.last_seen_ms),
        view.certificate_days,
        view.rows,
        tuple(view.runs),
    )


def _waiting(view: pb.WaitingView) -> Waiting:
    return Waiting(view.participant, datetime.fromtimestamp(view.since_ms / 1000, UTC), view.connected, view.said)


def _moment(milliseconds: int) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None
