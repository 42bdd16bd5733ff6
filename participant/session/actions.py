"""What a session asks its driver to do. Round messages carry their content, ready to be encoded."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dcfpca.run_references import AttemptRef
from dcfpca.secagg.errors import Evidence
from dcfpca.secagg.messages import Advert, Complaint, Misfit, SealedShare
from dcfpca.spec import RunSpec
from participant.session.events import AnnouncedConsensus


@dataclass(frozen=True, slots=True)
class Consent:
    """The site's answer to a proposal, to be signed and sent; it binds to the spec with this digest.

    It is final, except that the site may withdraw: a refusal by an enrolled site takes it out of the run.
    """

    spec: RunSpec
    digest: bytes
    accept: bool
    reasons: tuple[str, ...]
    private: bool

    def withdrawn(self, *reasons: str) -> Consent:
        """The answer of a site that leaves the run for these reasons."""
        return replace(self, accept=False, reasons=reasons)


@dataclass(frozen=True, slots=True)
class AwaitApproval:
    """Ask a person at the site; `reason` says what is unusual about the run, if anything is."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Compute:
    """Answer this round: compute the local step on this consensus, save it, mask it, then report `Answered`."""

    round: int
    consensus: AnnouncedConsensus


@dataclass(frozen=True, slots=True)
class Submit:
    """Send the update, which `Session.update` gives."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class SendMisfit:
    """Send the signed statement that the update does not fit under the announced exponents."""

    ref: AttemptRef
    misfit: Misfit


@dataclass(frozen=True, slots=True)
class AdvertiseRunKey:
    """Send the key of the run."""

    advert: Advert


@dataclass(frozen=True, slots=True)
class ShareGroupSecret:
    """Send the share of the group secret, sealed for every other member."""

    shares: tuple[SealedShare, ...]


@dataclass(frozen=True, slots=True)
class SignedEvidence:
    """What proves a lie of the aggregator, signed with the site's identity key."""

    evidence: Evidence
    signature: bytes


@dataclass(frozen=True, slots=True)
class Complain:
    """Send a signed complaint; the run waits, and the operator sees it. `proof` stays in the site's ledger."""

    complaint: Complaint
    proof: SignedEvidence | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """Fetch the final consensus and write the results."""

    round: int
    outcome: str
    consensus: AnnouncedConsensus


@dataclass(frozen=True, slots=True)
class Forget:
    """The run ended without a result: drop its local state."""

    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class Export:
    """Send L.npy and S.npz."""

    export_id: str


@dataclass(frozen=True, slots=True)
class RefuseExport:
    """Send the reason why the reconstruction is not exported."""

    export_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class LogRefusal:
    """Log why an assignment is not carried out; nothing is sent. `kind` names the error."""

    kind: str
    reason: str


RoundMessage = Submit | SendMisfit
RunMessage = AdvertiseRunKey | ShareGroupSecret | Complain
LocalAction = AwaitApproval | Compute | Finish | Forget | LogRefusal
Action = Consent | RoundMessage | RunMessage | LocalAction | Export | RefuseExport


@dataclass(frozen=True, slots=True)
class Reaction:
    """The actions that an event leads to, and whether the event must be saved before them."""

    actions: tuple[Action, ...] = ()
    save: bool = False
