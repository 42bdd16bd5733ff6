"""What happened to a run, in the past tense. Replaying the journal of events gives the run's state.

`kind` is the name under which an event is stored; `aggregator.store.stored_json` keeps the stored layout stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from aggregator.run.records import Record
from dcfpca.attempt_ref import AttemptRef
from dcfpca.secagg import Advert, Reveal, fixed_cohort


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
class KeysAdvertised(AttemptMessage):
    """Step 1 of the secure sum: the public keys of this attempt."""

    kind: Literal["keys_advertised"] = "keys_advertised"
    advert: Advert


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesSent(AttemptMessage):
    """Step 2: the sealed share for each recipient."""

    kind: Literal["shares_sent"] = "shares_sent"
    shares: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundStated(AttemptMessage):
    """Step 3: all values of the update are below 2^exponent in magnitude."""

    kind: Literal["bound_stated"] = "bound_stated"
    exponent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReceived(AttemptMessage):
    """Step 4: the complete update, plain or masked, arrived and matches its digest. `tag`: only of a fixed cohort."""

    kind: Literal["update_received"] = "update_received"
    sha256: bytes
    size: int
    tag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivorsAttested(AttemptMessage):
    """Step 5: signature over the announced survivors."""

    kind: Literal["survivors_attested"] = "survivors_attested"
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesRevealed(AttemptMessage):
    """Step 6: shares that remove the masks."""

    kind: Literal["shares_revealed"] = "shares_revealed"
    reveal: Reveal


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKeyAdvertised(ParticipantEvent):
    """Fixed cohort, set-up 1: the public key of the run."""

    kind: Literal["run_key_advertised"] = "run_key_advertised"
    run_key: fixed_cohort.Advert


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSecretShared(ParticipantEvent):
    """Fixed cohort, set-up 2: a sealed share of the group secret for every other member."""

    kind: Literal["group_secret_shared"] = "group_secret_shared"
    shares: tuple[fixed_cohort.SealedShare, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MisfitReported(AttemptMessage):
    """Fixed cohort: an update does not fit under the exponents of this attempt."""

    kind: Literal["misfit_reported"] = "misfit_reported"
    misfit: fixed_cohort.Misfit


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

    `consensus` is the SHA-256 of the new consensus. Of a fixed cohort: `sum_digest` names the opened sum, and
    `exponents` and `stage` are those of the next round.
    """

    kind: Literal["consensus_reached"] = "consensus_reached"
    ref: AttemptRef
    outcome: str = ""
    consensus: bytes = b""
    sum_digest: bytes = b""
    exponents: tuple[int, ...] = ()
    stage: int = 0


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

    The round needs a new attempt, or, in a fixed cohort, the same updates of these participants again.
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


RoundMessage = KeysAdvertised | SharesSent | BoundStated | UpdateReceived | SurvivorsAttested | SharesRevealed
SetUpMessage = RunKeyAdvertised | GroupSecretShared
Event = (
    Responded
    | EnrolmentClosed
    | RoundMessage
    | SetUpMessage
    | MisfitReported
    | Complained
    | MemberRevoked
    | ConsensusReached
    | SumFailed
    | UpdatesLost
    | NewerAttemptShown
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
