"""A run as the aggregator knows it. Frozen: a step makes a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from aggregator.run.records import Consent, ExportAnswer, Keys, Record, Reveal


class Status(StrEnum):
    """Where a run stands, as operators see it."""

    ENROLLING = "enrolling"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    FAILED = "failed"
    ABORTED = "aborted"

    @property
    def over(self) -> bool:
        """Nothing will happen any more."""
        return self in (Status.FINISHED, Status.FAILED, Status.ABORTED)


class Phase(StrEnum):
    """What the open attempt waits for. A plain round has only uploading and summing."""

    ADVERTISING = "advertising"
    SHARING = "sharing"
    UPLOADING = "uploading"
    ATTESTING = "attesting"
    UNMASKING = "unmasking"
    SUMMING = "summing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Record):
    """One attempt at one round. `first_attempt` is the one from which `max_attempts` counts: 1, or since the resume."""

    round: int
    attempt: int
    first_attempt: int
    phase: Phase
    opened_at: float
    keys: Mapping[str, Keys] = field(default_factory=dict)
    roster: tuple[str, ...] = ()
    shares: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    bounds: Mapping[str, int] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    exponent: int = 0
    updates: Mapping[str, bytes] = field(default_factory=dict)
    survivors: tuple[str, ...] = ()
    attestations: Mapping[str, bytes] = field(default_factory=dict)
    reveals: Mapping[str, Reveal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export(Record):
    """The request for reconstructions, and what came of it so far."""

    export_id: str
    answers: Mapping[str, ExportAnswer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Record):
    """Everything the rules need to go on. `absent` have no connection, `silent` missed a deadline while connected.

    `seal` is the secret of the run's tickets. While `restarted_at` is set, the run waits for a quorum to come back
    after a restart of the aggregator; `back` are those who have.
    """

    run_id: str
    created_at: float
    operator: str = ""
    seal: bytes = field(default=b"", repr=False)
    status: Status = Status.ENROLLING
    reason: str = ""
    enrolled: Mapping[str, Consent] = field(default_factory=dict)
    refusals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cohort: tuple[str, ...] = ()
    absent: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    restarted_at: float = 0.0
    back: frozenset[str] = frozenset()
    round: Round | None = None
    ended_at: float = 0.0
    export: Export | None = None

    @property
    def active(self) -> tuple[str, ...]:
        """Those of the cohort whose answer is worth waiting for."""
        return tuple(name for name in self.cohort if name not in self.absent and name not in self.silent)

    @property
    def phase(self) -> str:
        """The word for what is going on, for people."""
        if self.status is Status.RUNNING and self.round:
            return self.round.phase.value
        return "enrolling" if self.status is Status.ENROLLING else "over" if self.status.over else "paused"

    def stage(self) -> tuple[str, int, int, str, str]:
        """Changes exactly when somebody other than the sender of the last message has something new to do."""
        at = (self.round.round, self.round.attempt) if self.round else (-1, 0)
        return (self.status.value, *at, self.phase, self.export.export_id if self.export else "")


def ended(run: Run, status: Status, reason: str, at: float) -> Run:
    """The run when it is over: keys and shares of its last attempt are forgotten."""
    last = run.round and Round(
        round=run.round.round,
        attempt=run.round.attempt,
        first_attempt=run.round.first_attempt,
        phase=Phase.SUMMING,
        opened_at=run.round.opened_at,
        survivors=run.round.survivors,
    )
    return replace(run, status=status, reason=reason, ended_at=at, round=last)
