"""What a session hears: assignments of the aggregator, already decoded, and the outcomes of its own actions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from dcfpca.fate import Fate
from dcfpca.rpca.method import FloatArray
from dcfpca.secagg import Delivery, Roster, Survivors, UnmaskRequest


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """One attempt at one round; later ones compare greater."""

    round: int
    attempt: int

    def __str__(self) -> str:
        return f"round {self.round} attempt {self.attempt}"


class Kind(StrEnum):
    """The messages a site sends in a round; one of each at most per attempt."""

    KEYS = "keys"
    SHARES = "shares"
    BOUND = "bound"
    UPDATE = "update"
    ATTESTATION = "attestation"
    REVEAL = "reveal"


@dataclass(frozen=True, slots=True)
class ConsensusHeader:
    """The consensus of a round as announced; `inline` holds it when it is small."""

    rows: int
    columns: int
    scalars: int
    sha256: bytes
    inline: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Proposed:
    """A run is proposed."""

    spec: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class Approved:
    """A person at the site agreed to the run."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A round is open. `seed` is fresh entropy from the shell, used only if the attempt is new.

    `opened_before` are the survivors for whom the sum of an earlier attempt at this round was opened, if one was.
    `ticket` is for the aggregator to know its own announcement again.
    """

    ref: Ref
    digest: bytes
    cohort: tuple[str, ...]
    consensus: ConsensusHeader
    seed: bytes = field(repr=False, default=b"")
    opened_before: tuple[str, ...] = ()
    ticket: bytes = b""


@dataclass(frozen=True, slots=True)
class RosterRelayed:
    """Who advertised, with the neighbours' keys."""

    ref: Ref
    roster: Roster


@dataclass(frozen=True, slots=True)
class MaskWanted:
    """Who masks and how, with the shares addressed to this site."""

    ref: Ref
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class SurvivorsAnnounced:
    """Whose updates arrived."""

    ref: Ref
    survivors: Survivors


@dataclass(frozen=True, slots=True)
class UnmaskWanted:
    """Enough signed the survivors."""

    ref: Ref
    request: UnmaskRequest


@dataclass(frozen=True, slots=True)
class StoodBy:
    """Nothing to do now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over: finished, aborted or failed."""

    status: str
    reason: str
    round: int
    digest: bytes
    consensus: ConsensusHeader


@dataclass(frozen=True, slots=True)
class ExportWanted:
    """The operator asks for the reconstruction."""

    export_id: str


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """The local step of a round is done; its update and the site's state are saved."""

    round: int
    consensus_sha256: bytes
    vector: FloatArray = field(repr=False)


@dataclass(frozen=True, slots=True)
class ComputeFailed:
    """The local step of a round could not be done."""

    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The aggregator said what became of a message."""

    ref: Ref
    kind: Kind
    fate: Fate
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ResultsWritten:
    """The site's result lies in its results directory."""

    outcome: str


@dataclass(frozen=True, slots=True)
class TurnedDown:
    """The aggregator did not take the answer to the proposal: it came too late, or is not wanted."""

    reason: str


SecureStep = RosterRelayed | MaskWanted | SurvivorsAnnounced | UnmaskWanted
Assigned = Proposed | Opened | SecureStep | StoodBy | Ended | ExportWanted
Event = Assigned | Approved | Computed | ComputeFailed | Acknowledged | ResultsWritten | TurnedDown
