"""What a session is told: the aggregator's assignments, decoded, and the outcomes of the session's own actions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from dcfpca import secagg
from dcfpca.rpca.method import FloatArray
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.errors import SecureSumRefusal
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.receipt import Fate
from dcfpca.wire.tensors import Buffer


class Kind(StrEnum):
    """The messages that a site sends in a round, at most one of each per attempt."""

    UPDATE = "update"
    MISFIT = "misfit"


@dataclass(frozen=True, slots=True)
class AnnouncedConsensus:
    """The consensus of a round: header and stage as announced, and the bytes where they came inline."""

    header: types.TensorHeader
    inline: bytes = field(default=b"", repr=False)
    stage: str = ""

    @property
    def sha256(self) -> bytes:
        """The announced digest, by which one consensus is told from another."""
        return self.header.sha256


@dataclass(frozen=True, slots=True, eq=False)
class ShownSum:
    """A sum as the aggregator shows it: its header, and its bytes."""

    header: pb.SumHeader
    total: Buffer = field(repr=False)


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
    """A round is open.

    `ticket` is opaque: the site returns it, and a restored aggregator recognizes its own announcement by it.
    `announced` is the announcement itself, without the tensors; a secure run binds all of it into the masks.
    `shown` is the sum of the round before, where it came with the announcement.
    """

    ref: AttemptRef
    digest: bytes
    cohort: tuple[str, ...]
    consensus: AnnouncedConsensus
    ticket: bytes = b""
    announced: pb.RoundOpened | None = None
    shown: ShownSum | None = None


@dataclass(frozen=True, slots=True)
class KeyWanted:
    """Secure run: the set-up begins. `entropy` is fresh from the driver, used only if the site has no key yet."""

    digest: bytes
    cohort: tuple[str, ...]
    entropy: bytes = field(repr=False, default=b"")


@dataclass(frozen=True, slots=True)
class RosterClosed:
    """Secure run: the keys of the whole cohort."""

    roster: secagg.Roster


@dataclass(frozen=True, slots=True)
class SharesRelayed:
    """Secure run: the shares of the group secret that the others sealed for this site, and the roster again."""

    roster: secagg.Roster
    shares: tuple[secagg.SealedShare, ...] = field(repr=False)


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
    consensus: AnnouncedConsensus


@dataclass(frozen=True, slots=True)
class ExportWanted:
    """The operator asks for the reconstruction."""

    export_id: str


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """The local step of a round is done; its update and the site's state are saved.

    In a secure run, `broadcast` is the consensus it was computed on, as one vector, and `opening` the digest of all
    that was announced of the round when that consensus was checked. Elsewhere both are empty.
    """

    round: int
    consensus_sha256: bytes
    vector: FloatArray = field(repr=False)
    broadcast: FloatArray = field(repr=False, default_factory=lambda: np.zeros(0))
    stage: str = ""
    opening: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Secure run: what a site says to an opening, and its side once it has said it."""

    ref: AttemptRef
    side: secagg.SecureSite = field(repr=False)
    message: secagg.Masked | secagg.Misfit = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """Secure run: the saved update of a round was masked, or does not fit."""

    computed: Computed
    answer: Answer


@dataclass(frozen=True, slots=True)
class RoundRefused:
    """Secure run: what was announced for a round may not be answered, or the site cannot answer it."""

    round: int
    error: SecureSumRefusal


@dataclass(frozen=True, slots=True)
class ComputeFailed:
    """The local step of a round could not be done."""

    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The aggregator said what became of a message."""

    ref: AttemptRef
    kind: Kind
    fate: Fate
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ResultsWritten:
    """The site's result is complete in its results directory."""

    outcome: str


@dataclass(frozen=True, slots=True)
class TurnedDown:
    """The aggregator did not accept the answer to the proposal: it was late or rejected."""

    reason: str


SetUpStep = KeyWanted | RosterClosed | SharesRelayed
Assigned = Proposed | Opened | SetUpStep | StoodBy | Ended | ExportWanted
Outcome = Computed | ComputeFailed | Answered | RoundRefused | Acknowledged | ResultsWritten | TurnedDown
Event = Assigned | Approved | Outcome
