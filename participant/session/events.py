"""What a session hears: the aggregator's assignments, decoded, and the outcomes of the session's own actions.

Everything here is plain and frozen. Wire formats stay in `participant.wire_codec`, so a test states an event directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import Consensus, FloatArray
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.errors import SecureSumRefusal
from dcfpca.secagg.messages import Masked, Misfit, Roster, SealedShare
from dcfpca.secagg.site import SecureSite
from dcfpca.wire.tensors import Buffer


@dataclass(frozen=True, slots=True)
class AnnouncedConsensus:
    """The consensus of a round as announced: stage, number format, shape and digest; its bytes where they came inline.

    Two announcements of one consensus are equal, whether its bytes came along or not.
    """

    stage: str = ""
    dtype: int = 0
    rows: int = 0
    columns: int = 0
    scalars: int = 0
    sha256: bytes = b""
    inline: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a secure run binds into the masks of a round, beside the bytes of the consensus."""

    round: int = 0
    stage: str = ""
    previous_sum: bytes = b""
    exponents: tuple[int, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    memory_sha256: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class ShownSum:
    """A sum as the aggregator shows it: the announcement of its round, its tag, the method's memory, and its bytes."""

    announced: Announcement
    tag: int
    memory: bytes = field(repr=False)
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
class Declined:
    """A person at the site declined the run, with a reason that the operator is told."""

    reason: str


@dataclass(frozen=True, slots=True)
class Restored:
    """After a restart: the cohort and the key record of a secure run, which may have been computed on other data."""

    cohort: tuple[str, ...]
    slots: tuple[bytes, ...] = field(repr=False)
    other_data: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """A round is open. Announcements of the same attempt are equal even if ticket or `shown` differ.

    `ticket` is opaque: the site returns it, and a restored aggregator recognizes its own announcement by it.
    `shown` is the sum of the round before, where it came with the announcement.
    """

    ref: AttemptRef
    digest: bytes
    cohort: tuple[str, ...]
    consensus: AnnouncedConsensus
    announced: Announcement = Announcement()
    ticket: bytes = field(default=b"", compare=False)
    shown: ShownSum | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class KeyWanted:
    """Secure run: the set-up begins. `entropy` is fresh from the driver, used only if the site has no key yet."""

    digest: bytes
    cohort: tuple[str, ...]
    entropy: bytes = field(repr=False, default=b"")


@dataclass(frozen=True, slots=True)
class RosterClosed:
    """Secure run: the keys of the whole cohort."""

    roster: Roster


@dataclass(frozen=True, slots=True)
class SharesRelayed:
    """Secure run: the shares of the group secret that the others sealed for this site, and the roster again."""

    roster: Roster
    shares: tuple[SealedShare, ...] = field(repr=False)


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
class LocalStep:
    """A local step that is done and saved: the update, and `snapshot`, from which the site computes the next step.

    In a secure run, `broadcast` is the consensus it was computed on, as one vector, and `opening` the digest of all
    that was announced of the round when that consensus was checked. Elsewhere both are empty.
    """

    round: int
    consensus_sha256: bytes
    vector: FloatArray = field(repr=False)
    snapshot: Mapping[str, NDArray[np.generic]] = field(repr=False, default_factory=dict)
    broadcast: FloatArray = field(repr=False, default_factory=lambda: np.zeros(0))
    stage: str = ""
    opening: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class CheckedSum:
    """Secure run: this site found that the consensus with the digest `sha256` follows from the sum before.

    `expected` is set where the memory that follows here differs from the announced one in some bits: it is held against
    the memory that is shown with the next sum. `memory` is the one that follows here, encoded.
    """

    sha256: bytes
    expected: Consensus | None = None
    memory: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """The open attempt has its answer. In a secure run that is the masked update or a misfit, and `side` is the site's
    side once it has said so; in a plain run both are None, and the update is sent as it was computed."""

    step: LocalStep
    ref: AttemptRef
    message: Masked | Misfit | None = field(default=None, repr=False)
    side: SecureSite | None = field(default=None, repr=False)
    checked: CheckedSum | None = None


@dataclass(frozen=True, slots=True)
class RoundRefused:
    """What was announced for a round may not be answered, or the site cannot answer it."""

    round: int
    error: SecureSumRefusal


@dataclass(frozen=True, slots=True)
class FeaturesDiffer:
    """Before the site's columns enter a fit in this round: its features differ from those of all sites."""

    round: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The aggregator said what became of the message of this attempt; it need not be sent again."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class EndRefused:
    """Secure run: the final consensus was checked, and no results may be formed from it."""

    error: SecureSumRefusal


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
Outcome = LocalStep | Answered | RoundRefused | FeaturesDiffer | Acknowledged | EndRefused | ResultsWritten | TurnedDown
Event = Assigned | Approved | Declined | Restored | Outcome
