"""What happened to a run, in the past tense. The journal is a list of these; replaying it gives the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from aggregator.run.records import Keys, Record, Reveal


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened(Record):
    """`at` is Unix seconds, told by the shell that saw it happen."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Said(Happened):
    """Something a participant sent."""

    participant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidInRound(Said):
    """Something a participant sent for one attempt at one round."""

    round: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Responded(Said):
    """A participant enrolled or refused."""

    kind: Literal["responded"] = "responded"
    accept: bool
    reasons: tuple[str, ...] = ()
    private: bool = False
    signature: bytes = b""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentClosed(Happened):
    """Everybody who is there has answered, or the enrolment deadline passed (`overdue`)."""

    kind: Literal["enrolment_closed"] = "enrolment_closed"
    overdue: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysAdvertised(SaidInRound):
    """Step 1 of the secure sum."""

    kind: Literal["keys_advertised"] = "keys_advertised"
    keys: Keys


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesSent(SaidInRound):
    """Step 2: one ciphertext per recipient."""

    kind: Literal["shares_sent"] = "shares_sent"
    shares: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundStated(SaidInRound):
    """Step 3: all values of the update are below 2^exponent."""

    kind: Literal["bound_stated"] = "bound_stated"
    exponent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReceived(SaidInRound):
    """The whole update or masked update has arrived and matches its digest."""

    kind: Literal["update_received"] = "update_received"
    sha256: bytes
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivorsAttested(SaidInRound):
    """Step 5: signature over the announced survivors."""

    kind: Literal["survivors_attested"] = "survivors_attested"
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesRevealed(SaidInRound):
    """Step 6: shares that remove the masks."""

    kind: Literal["shares_revealed"] = "shares_revealed"
    reveal: Reveal


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsensusReached(Happened):
    """The sum of this attempt was formed and the method advanced; with an outcome the method is done."""

    kind: Literal["consensus_reached"] = "consensus_reached"
    round: int
    attempt: int
    outcome: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumFailed(Happened):
    """The sum of this attempt could not be used; `fatal` when another attempt would end the same way."""

    kind: Literal["sum_failed"] = "sum_failed"
    round: int
    attempt: int
    reason: str
    fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatesLost(Happened):
    """Accepted updates of this attempt did not survive a power cut or a restore; the round needs a new attempt."""

    kind: Literal["updates_lost"] = "updates_lost"
    round: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAhead(SaidInRound):
    """A participant showed the ticket of an attempt that this run opened, but that its store has forgotten.

    `same_consensus`: it began with the consensus that the run has now.
    """

    kind: Literal["seen_ahead"] = "seen_ahead"
    same_consensus: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted(Happened):
    """The aggregator took the run up again; nobody is connected yet."""

    kind: Literal["restarted"] = "restarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinePassed(Happened):
    """The time allotted to a phase of this attempt is over."""

    kind: Literal["deadline_passed"] = "deadline_passed"
    round: int
    attempt: int
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Said):
    """A participant's stream opened."""

    kind: Literal["joined"] = "joined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(Said):
    """A participant's stream has been gone for longer than the grace."""

    kind: Literal["left"] = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted(Happened):
    """An operator ended the run."""

    kind: Literal["aborted"] = "aborted"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(Happened):
    """An operator let a paused run go on."""

    kind: Literal["resumed"] = "resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequested(Happened):
    """An operator asked for the reconstructions."""

    kind: Literal["export_requested"] = "export_requested"
    export_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileExported(Said):
    """One file of a reconstruction has arrived whole."""

    kind: Literal["file_exported"] = "file_exported"
    export_id: str
    artifact: str
    size: int
    sha256: bytes = field(default=b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRefused(Said):
    """A participant will not export."""

    kind: Literal["export_refused"] = "export_refused"
    export_id: str
    reason: str


RoundMessage = KeysAdvertised | SharesSent | BoundStated | UpdateReceived | SurvivorsAttested | SharesRevealed
Event = (
    Responded
    | EnrolmentClosed
    | RoundMessage
    | ConsensusReached
    | SumFailed
    | UpdatesLost
    | SeenAhead
    | Restarted
    | DeadlinePassed
    | Joined
    | Left
    | Aborted
    | Resumed
    | ExportRequested
    | FileExported
    | ExportRefused
)
