"""The state of a run. All classes are frozen: a step returns a new state.

Stored as JSON in the layout of `aggregator.store.codec`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from pydantic import ConfigDict

from dcfpca.run_references import AttemptRef
from dcfpca.secagg.messages import NO_SUM, Advert, Misfit, Opening, SealedShare
from dcfpca.spec import RunSpec
from dcfpca.wire.constants import ARTIFACTS

if TYPE_CHECKING:
    from dcfpca.terms import Terms

MOST_COMPLAINTS = 20
"""How many a run keeps; beyond that the oldest of whoever complained most is dropped."""


class Record:
    """Base of journaled data classes: bytes become base64 in JSON."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


@dataclass(frozen=True, slots=True)
class Consent(Record):
    """A participant's signed answer to the proposal, when it enrolled."""

    private: bool
    signature: bytes
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ExportAnswer(Record):
    """One participant's answer to an export request: (artifact, size, SHA-256) of each file received, or a refusal."""

    files: tuple[tuple[str, int, bytes], ...] = ()
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class StoredComplaint(Record):
    """What a participant signed about a run: whom it accuses (empty: nobody in particular) of what."""

    participant: str
    accused: str
    error: str
    sentence: str
    at: float
    certificate: bytes = field(default=b"", repr=False)
    signature: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureSum(Record):
    """The secure sum of a run: its set-up, and what the open round is bound to.

    `roster` is the digest of all adverts once everybody has advertised. Adverts and shares are dropped when round 0 is
    summed: by then every member has completed its set-up. `ready` are those whose first update has shown it.
    `exponents` are those of the open round before its `misfits`, `stage` is its stage; `lifts` counts earlier misfits.
    `waiting` has the moment since which each late or absent member is awaited.
    """

    exponents: tuple[int, ...]
    adverts: Mapping[str, Advert] = field(default_factory=dict)
    shares: Mapping[str, tuple[SealedShare, ...]] = field(default_factory=dict)
    roster: bytes = b""
    ready: frozenset[str] = frozenset()
    previous_sum: bytes = NO_SUM
    misfits: tuple[Misfit, ...] = ()
    lifts: int = 0
    stage: str = ""
    waiting: Mapping[str, float] = field(default_factory=dict)


class Status(StrEnum):
    """The status of a run, as operators see it."""

    ENROLLING = "enrolling"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    FAILED = "failed"
    ABORTED = "aborted"

    @cached_property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self in (Status.FINISHED, Status.FAILED, Status.ABORTED)


class Phase(StrEnum):
    """What the open attempt waits for. The first two are the set-up of a secure run; a round is the other two."""

    ADVERTISING = "advertising"
    SHARING = "sharing"
    UPLOADING = "uploading"
    SUMMING = "summing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Record):
    """The open attempt at a round, or the last one of a run that ended, with the messages accepted in it.

    `first_attempt` is the number from which `max_attempts` counts: 1, or the first attempt after a resume. `tags` stay
    empty in a plain run.
    """

    ref: AttemptRef
    first_attempt: int
    phase: Phase
    opened_at: float
    updates: Mapping[str, bytes] = field(default_factory=dict)
    tags: Mapping[str, int] = field(default_factory=dict)
    survivors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Export(Record):
    """An export request and the answers received so far, by participant."""

    export_id: str
    answers: Mapping[str, ExportAnswer] = field(default_factory=dict)

    def is_answered_by(self, participant: str) -> bool:
        """Whether this participant has refused or sent every artifact."""
        answer = self.answers.get(participant, ExportAnswer())
        return bool(answer.refusal) or len(answer.files) == len(ARTIFACTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Record):
    """The state of one run. `absent` have no connection, `silent` missed a deadline while connected.

    `spec_sha256` is the digest that the participants consented to; it is derived from the stored spec and not stored
    with the state. `secure` is set in a secure run from the end of its enrolment.
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
    secure: SecureSum | None = None
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


def opened(run: Run) -> tuple[SecureSum, Attempt]:
    """The secure sum and the open attempt of a run that is past its enrolment and not over."""
    assert run.secure is not None
    assert run.attempt is not None
    return run.secure, run.attempt


def opening_of(terms: Terms, run: Run, consensus: bytes) -> Opening:
    """The opening of the open round of a secure run; `consensus` is its digest as it is announced."""
    bound, attempt = opened(run)
    layout = terms.blocks[bound.stage]
    return Opening(attempt.ref.round, consensus, bound.previous_sum, layout, bound.exponents, bound.misfits)


def ended(run: Run, status: Status, reason: str, at: float) -> Run:
    """The run after its end; keys and shares of its set-up and of its last attempt are dropped."""
    last = run.attempt and Attempt(
        ref=run.attempt.ref,
        first_attempt=run.attempt.first_attempt,
        phase=Phase.SUMMING,
        opened_at=run.attempt.opened_at,
        survivors=run.attempt.survivors,
    )
    return replace(run, status=status, reason=reason, ended_at=at, attempt=last, secure=None)


def paused(run: Run, reason: str) -> Run:
    """The run until an operator resumes or ends it; what was accepted in the open attempt stays."""
    return replace(run, status=Status.PAUSED, reason=reason)


def with_complaint(run: Run, complaint: StoredComplaint) -> Run:
    """The run with one more complaint kept for its operators."""
    kept = (*run.complaints, complaint)
    if len(kept) > MOST_COMPLAINTS:
        ((loudest, _),) = Counter(one.participant for one in kept).most_common(1)
        oldest = next(place for place, one in enumerate(kept) if one.participant == loudest)
        kept = kept[:oldest] + kept[oldest + 1 :]
    return replace(run, complaints=kept)


def refusals_text(spec: RunSpec, run: Run) -> str:
    """Who refused and why, and who has not answered, each after a semicolon."""
    refused = [f"{name} refused: {'; '.join(reasons)}" for name, reasons in sorted(run.refusals.items())]
    unheard = sorted(set(spec.participants) - set(run.enrolled) - set(run.refusals))
    silent = [f"no answer from {', '.join(unheard)}"] if unheard else []
    return "".join(f"; {text}" for text in refused + silent)
