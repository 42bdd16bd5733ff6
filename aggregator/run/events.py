"""What happened to a run, in the past tense. Replaying the journal of events gives the run's state.

`kind` is the name under which an event is stored; `aggregator.store.codec` keeps the stored layout stable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from aggregator.run.state import Record
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.messages import Advert, Misfit, SealedShare


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent(Record):
    """Base of all events; `at` is when it was received, in Unix seconds."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticipantEvent(RunEvent):
    """An event caused by a participant."""

    participant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptMessage(ParticipantEvent):
    """A participant's message for one attempt."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Responded(ParticipantEvent):
    """A participant enrolled or refused."""

    kind: Literal["responded"] = "responded"
    accept: bool
    reasons: tuple[str, ...] = ()
    private: bool = False
    signature: bytes = b""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentClosed(RunEvent):
    """Every connected participant has answered, or the enrolment deadline passed (`overdue`)."""

    kind: Literal["enrolment_closed"] = "enrolment_closed"
    overdue: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReceived(AttemptMessage):
    """The complete update, plain or masked, arrived and matches its digest. `tag`: only of a masked one."""

    kind: Literal["update_received"] = "update_received"
    sha256: bytes
    size: int
    tag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKeyAdvertised(ParticipantEvent):
    """Set-up of a secure run, step 1: the public key of the run."""

    kind: Literal["run_key_advertised"] = "run_key_advertised"
    run_key: Advert


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSecretShared(ParticipantEvent):
    """Set-up of a secure run, step 2: a sealed share of the group secret for every other member."""

    kind: Literal["group_secret_shared"] = "group_secret_shared"
    shares: tuple[SealedShare, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MisfitReported(AttemptMessage):
    """Secure run: an update does not fit under the exponents of this attempt."""

    kind: Literal["misfit_reported"] = "misfit_reported"
    misfit: Misfit


@dataclass(frozen=True, slots=True, kw_only=True)
class Complained(ParticipantEvent):
    """A participant signed why it cannot go on with the run."""

    kind: Literal["complained"] = "complained"
    accused: str
    error: str
    sentence: str
    certificate: bytes
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRevoked(ParticipantEvent):
    """The certificates of a member of the cohort were revoked."""

    kind: Literal["member_revoked"] = "member_revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsensusReached(RunEvent):
    """The sum of this attempt was formed and the method advanced; a non-empty outcome ends the run.

    Of a secure run: `sum_digest` names the opened sum, and `exponents` and `stage` are those of the next round.
    """

    kind: Literal["consensus_reached"] = "consensus_reached"
    ref: AttemptRef
    outcome: str = ""
    sum_digest: bytes = b""
    exponents: tuple[int, ...] = ()
    stage: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumFailed(RunEvent):
    """The sum of this attempt could not be used; `fatal` when another attempt would fail in the same way."""

    kind: Literal["sum_failed"] = "sum_failed"
    ref: AttemptRef
    reason: str
    fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatesLost(RunEvent):
    """Accepted updates of this attempt were lost in a power cut or a restore.

    A secure run awaits the same updates of these participants again, a plain one opens a new attempt.
    """

    kind: Literal["updates_lost"] = "updates_lost"
    ref: AttemptRef
    reason: str
    participants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewerAttemptShown(AttemptMessage):
    """A participant showed the ticket of an attempt that this run opened, and that a restored store does not contain.

    `same_consensus`: that attempt began with the consensus that the run holds now.
    """

    kind: Literal["seen_ahead"] = "seen_ahead"
    same_consensus: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsensusReturned(RunEvent):
    """All members of a secure run showed the same announcement of an attempt that a restored store does not contain."""

    kind: Literal["consensus_returned"] = "consensus_returned"
    ref: AttemptRef
    stage: str
    previous_sum: bytes
    exponents: tuple[int, ...]
    misfits: tuple[Misfit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted(RunEvent):
    """The aggregator restarted and loaded the run; no participant is connected yet."""

    kind: Literal["restarted"] = "restarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinePassed(RunEvent):
    """The deadline of a phase of this attempt passed."""

    kind: Literal["deadline_passed"] = "deadline_passed"
    ref: AttemptRef
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(ParticipantEvent):
    """A participant's stream opened."""

    kind: Literal["joined"] = "joined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(ParticipantEvent):
    """A participant's stream has been closed for longer than the grace period."""

    kind: Literal["left"] = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted(RunEvent):
    """An operator ended the run."""

    kind: Literal["aborted"] = "aborted"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedByOperator(RunEvent):
    """An operator ended the run with the consensus it has."""

    kind: Literal["finished_by_operator"] = "finished_by_operator"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(RunEvent):
    """An operator resumed a paused run."""

    kind: Literal["resumed"] = "resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequested(RunEvent):
    """An operator requested the reconstructions."""

    kind: Literal["export_requested"] = "export_requested"
    export_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileExported(ParticipantEvent):
    """One file of a reconstruction arrived completely and matches its digest."""

    kind: Literal["file_exported"] = "file_exported"
    export_id: str
    artifact: str
    size: int
    sha256: bytes = field(default=b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportsLost(RunEvent):
    """Exported files of these participants are not on this machine: another aggregator has them, or a disk died."""

    kind: Literal["exports_lost"] = "exports_lost"
    participants: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRefused(ParticipantEvent):
    """A participant refused to export its reconstruction."""

    kind: Literal["export_refused"] = "export_refused"
    export_id: str
    reason: str


SetUpMessage = RunKeyAdvertised | GroupSecretShared
SecureStep = SetUpMessage | MisfitReported
"""The messages, beside updates, that only the sum of a secure run needs."""
Event = (
    Responded
    | EnrolmentClosed
    | UpdateReceived
    | SecureStep
    | Complained
    | MemberRevoked
    | ConsensusReached
    | SumFailed
    | UpdatesLost
    | NewerAttemptShown
    | ConsensusReturned
    | Restarted
    | DeadlinePassed
    | Joined
    | Left
    | Aborted
    | FinishedByOperator
    | Resumed
    | ExportRequested
    | FileExported
    | ExportRefused
    | ExportsLost
)
