"""The state of a run. All classes are frozen: a step returns a new state.

Stored as JSON in the layout of `aggregator.store.stored_json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from aggregator.run.records import Consent, ExportAnswer, FixedCohort, Record, StoredComplaint
from dcfpca.attempt_ref import AttemptRef
from dcfpca.secagg import Advert, Reveal


class Status(StrEnum):
    """The status of a run, as operators see it."""

    ENROLLING = "enrolling"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    FAILED = "failed"
    ABORTED = "aborted"

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self in (Status.FINISHED, Status.FAILED, Status.ABORTED)


class Phase(StrEnum):
    """What the open attempt waits for. A plain round, and one that waits for everybody, is uploading and summing."""

    ADVERTISING = "advertising"
    SHARING = "sharing"
    UPLOADING = "uploading"
    ATTESTING = "attesting"
    UNMASKING = "unmasking"
    SUMMING = "summing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Record):
    """The open attempt at a round, or the last one of a run that ended, with the messages accepted in it.

    `first_attempt` is the number from which `max_attempts` counts: 1, or the first attempt after a resume. `consensus`
    is the SHA-256 of the consensus that the attempt answers. `roster`, `members` and `exponent` stay empty unless
    the run goes on without dropouts, `tags` unless it waits for them.
    """

    ref: AttemptRef
    first_attempt: int
    phase: Phase
    opened_at: float
    consensus: bytes = b""
    adverts: Mapping[str, Advert] = field(default_factory=dict)
    roster: tuple[str, ...] = ()
    shares: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    bounds: Mapping[str, int] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    exponent: int = 0
    updates: Mapping[str, bytes] = field(default_factory=dict)
    tags: Mapping[str, int] = field(default_factory=dict)
    survivors: tuple[str, ...] = ()
    attestations: Mapping[str, bytes] = field(default_factory=dict)
    reveals: Mapping[str, Reveal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export(Record):
    """An export request and the answers received so far, by participant."""

    export_id: str
    answers: Mapping[str, ExportAnswer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Record):
    """The state of one run. `absent` have no connection, `silent` missed a deadline while connected.

    `spec_sha256` is the digest that the participants consented to; it is derived from the stored spec and not stored
    with the state. `fixed_cohort` is set in a secure run that waits for dropouts, from the end of its enrolment.
    `seal` is the secret key of the run's tickets. While `restarted_at` is set, the run waits for a quorum to reconnect
    after a restart of the aggregator; `back` are those who have.
    """

    run_id: str
    created_at: float
    spec_sha256: bytes = b""
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
    attempt: Attempt | None = None
    fixed_cohort: FixedCohort | None = None
    complaints: tuple[StoredComplaint, ...] = ()
    ended_at: float = 0.0
    export: Export | None = None

    @property
    def phase(self) -> str:
        """The phase as shown to operators."""
        if self.status is Status.RUNNING and self.attempt:
            return self.attempt.phase.value
        return "enrolling" if self.status is Status.ENROLLING else "over" if self.status.over else "paused"

    def stage(self) -> tuple[str, int, int, str, str]:
        """A value that changes exactly when somebody other than the sender of a message has something new to do."""
        at = (self.attempt.ref.round, self.attempt.ref.attempt) if self.attempt else (-1, 0)
        return (self.status.value, *at, self.phase, self.export.export_id if self.export else "")


def ended(run: Run, status: Status, reason: str, at: float) -> Run:
    """The run after its end; keys and shares of its set-up and of its last attempt are dropped."""
    last = run.attempt and Attempt(
        ref=run.attempt.ref,
        first_attempt=run.attempt.first_attempt,
        phase=Phase.SUMMING,
        opened_at=run.attempt.opened_at,
        survivors=run.attempt.survivors,
    )
    return replace(run, status=status, reason=reason, ended_at=at, attempt=last, fixed_cohort=None)


def paused(run: Run, reason: str) -> Run:
    """The run until an operator resumes or ends it; what was accepted in the open attempt stays."""
    return replace(run, status=Status.PAUSED, reason=reason)
