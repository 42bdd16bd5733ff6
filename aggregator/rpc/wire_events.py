"""From wire messages to events of a run, and from replies to receipts."""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.run import events
from aggregator.run.backup_recovery import ShownTicket
from aggregator.run.effects import Reply
from dcfpca import dropout_recovery_wire, fixed_cohort_wire
from dcfpca.dropout_recovery_wire import ref_from_wire
from dcfpca.errors import BadMessage
from dcfpca.message_fate import Fate
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.types_pb2 import (
    FATE_ACCEPTED,
    FATE_DUPLICATE,
    FATE_LATE,
    FATE_REJECTED,
    Receipt,
)

MAX_TICKETS = 1000
"""The largest number of runs for which one participant may show a ticket."""

_FATES = {
    Fate.ACCEPTED: FATE_ACCEPTED,
    Fate.DUPLICATE: FATE_DUPLICATE,
    Fate.REJECTED: FATE_REJECTED,
    Fate.LATE: FATE_LATE,
}

_BEST_TO_WORST = (FATE_DUPLICATE, FATE_ACCEPTED, FATE_LATE, FATE_REJECTED)


def shown_tickets(request: pb.SubscribeRequest) -> list[ShownTicket]:
    """The tickets that a participant shows when it connects; raises BadMessage when there are too many."""
    if len(request.seen) > MAX_TICKETS:
        raise BadMessage(f"more than {MAX_TICKETS} runs are named", "end some of them")
    return [ShownTicket(ref_from_wire(one.ref), one.consensus_sha256, one.ticket) for one in request.seen]


def receipt(reply: Reply | None) -> Receipt:
    """The receipt that tells the sender this reply; without one the message was accepted."""
    reply = reply or Reply(Fate.ACCEPTED)
    return Receipt(fate=_FATES[reply.fate], reason=reply.reason)


def keys_advertised(request: pb.AdvertiseKeysRequest, who: str, at: float) -> events.KeysAdvertised:
    """Step 1; the keys must be the caller's own."""
    advert = dropout_recovery_wire.advert_from_wire(request.keys)
    if advert.name != who:
        raise BadMessage(f"the keys are those of {advert.name or 'nobody'}, but {who} sent them")
    return events.KeysAdvertised(at=at, participant=who, ref=ref_from_wire(request.ref), advert=advert)


def shares_sent(request: pb.ShareKeysRequest, who: str, at: float) -> events.SharesSent:
    """Step 2; one sealed share for each receiver, all from the caller."""
    sealed = dropout_recovery_wire.shares_from_wire(request.shares)
    if any(share.sender != who for share in sealed):
        raise BadMessage(f"shares of somebody else came from {who}")
    shares = {share.receiver: share.sealed for share in sealed}
    if len(shares) != len(sealed):
        raise BadMessage("two shares are for the same recipient")
    return events.SharesSent(at=at, participant=who, ref=ref_from_wire(request.ref), shares=shares)


def bound_stated(request: pb.StateBoundRequest | pb.ShareKeysRequest, who: str, at: float) -> events.BoundStated:
    """Step 3, by itself or with the shares."""
    return events.BoundStated(at=at, participant=who, ref=ref_from_wire(request.ref), exponent=request.exponent)


def survivors_attested(request: pb.AttestSurvivorsRequest, who: str, at: float) -> events.SurvivorsAttested:
    """Step 5."""
    ref = ref_from_wire(request.ref)
    return events.SurvivorsAttested(at=at, participant=who, ref=ref, signature=request.signature)


def shares_revealed(request: pb.UnmaskRequest, who: str, at: float) -> events.SharesRevealed:
    """Step 6."""
    reveal = dropout_recovery_wire.reveal_from_wire(request, who)
    return events.SharesRevealed(at=at, participant=who, ref=ref_from_wire(request.ref), reveal=reveal)


def run_key_advertised(request: pb.AdvertiseRunKeyRequest, who: str, at: float) -> events.RunKeyAdvertised:
    """Fixed cohort, set-up 1; the key must be the caller's own."""
    key = fixed_cohort_wire.advert_from_wire(request.key)
    if key.name != who:
        raise BadMessage(f"the key is that of {key.name}, but {who} sent it")
    return events.RunKeyAdvertised(at=at, participant=who, run_key=key)


def group_secret_shared(request: pb.ShareGroupSecretRequest, who: str, at: float) -> events.GroupSecretShared:
    """Fixed cohort, set-up 2."""
    shares = sorted(fixed_cohort_wire.shares_from_wire(request.shares), key=lambda share: share.receiver)
    return events.GroupSecretShared(at=at, participant=who, shares=tuple(shares))


def misfit_reported(request: pb.ReportMisfitRequest, who: str, at: float) -> events.MisfitReported:
    """Fixed cohort: an update that does not fit; the statement must be the caller's own."""
    misfit = fixed_cohort_wire.misfit_from_wire(request.misfit)
    if misfit.name != who:
        raise BadMessage(f"the misfit is not one of {who}, who sent it")
    return events.MisfitReported(at=at, participant=who, ref=ref_from_wire(request.ref), misfit=misfit)


def complained(request: pb.ComplainRequest, who: str, at: float) -> events.Complained:
    """A complaint; its author is the caller."""
    return events.Complained(
        at=at,
        participant=who,
        accused=request.accused,
        error=request.error,
        sentence=request.sentence,
        certificate=request.certificate,
        signature=request.signature,
    )


def responded(request: pb.RespondRequest, who: str, fingerprint: str, at: float) -> events.Responded:
    """An answer to a proposal."""
    return events.Responded(
        at=at,
        participant=who,
        accept=request.accept,
        reasons=tuple(request.reasons),
        private=request.private,
        signature=request.signature,
        fingerprint=fingerprint,
    )


def worst(receipts: Sequence[Receipt]) -> Receipt:
    """The receipt for a message that held several: the worst of theirs."""
    return max(receipts, key=lambda one: _BEST_TO_WORST.index(one.fate))


def fate_of(answer: Receipt) -> str:
    """The fate as logs and metrics name it."""
    return next(fate.value for fate, number in _FATES.items() if number == answer.fate)
