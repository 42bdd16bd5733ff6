"""What a session asks the shell to do, in the imperative. Messages carry what goes out, ready to be encoded."""

from __future__ import annotations

from dataclasses import dataclass

from dcfpca.secagg import Advert, Attestation, Bound, Reveal, SealedShare
from participant.session.events import ConsensusHeader, Kind, Ref


@dataclass(frozen=True, slots=True)
class Respond:
    """Sign and send the answer to the proposal; withdraws when an enrolled site refuses."""

    digest: bytes
    accept: bool
    reasons: tuple[str, ...]
    private: bool


@dataclass(frozen=True, slots=True)
class AwaitApproval:
    """Ask a person at the site."""


@dataclass(frozen=True, slots=True)
class Compute:
    """Do the local step of this round on this consensus, save its outcome, then report it."""

    round: int
    consensus: ConsensusHeader


@dataclass(frozen=True, slots=True)
class Advertise:
    """Send the keys of the attempt."""

    ref: Ref
    advert: Advert


@dataclass(frozen=True, slots=True)
class SendShares:
    """Send the sealed shares, and with them the bound where the local step is done by now."""

    ref: Ref
    shares: tuple[SealedShare, ...]
    bound: Bound | None = None


@dataclass(frozen=True, slots=True)
class SendBound:
    """Send the power of two that bounds the update."""

    ref: Ref
    bound: Bound


@dataclass(frozen=True, slots=True)
class Submit:
    """Send the update; `Session.update_bytes` gives its bytes, away from the event loop where they are many."""

    ref: Ref


@dataclass(frozen=True, slots=True)
class Attest:
    """Send the signature over the survivors."""

    ref: Ref
    attestation: Attestation


@dataclass(frozen=True, slots=True)
class SendReveal:
    """Send the shares that remove the masks."""

    ref: Ref
    reveal: Reveal


@dataclass(frozen=True, slots=True)
class Finish:
    """Fetch the final consensus and write the results."""

    round: int
    outcome: str
    consensus: ConsensusHeader


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
    """Say that the reconstruction stays here."""

    export_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Complain:
    """Do nothing for the aggregator, and say at the site why: it asked for something it may not have."""

    kind: str
    sentence: str


def kinds_of(action: RoundMessage) -> tuple[Kind, ...]:
    """Of which kinds the message is; the receipt is for all of them."""
    match action:
        case Advertise():
            return (Kind.KEYS,)
        case SendShares():
            return (Kind.SHARES,) if action.bound is None else (Kind.SHARES, Kind.BOUND)
        case SendBound():
            return (Kind.BOUND,)
        case Submit():
            return (Kind.UPDATE,)
        case Attest():
            return (Kind.ATTESTATION,)
        case SendReveal():
            return (Kind.REVEAL,)


RoundMessage = Advertise | SendShares | SendBound | Submit | Attest | SendReveal
Action = Respond | AwaitApproval | Compute | RoundMessage | Finish | Forget | Export | RefuseExport | Complain
