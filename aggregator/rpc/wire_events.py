"""From wire messages to runs and their events, and from replies to receipts."""

from __future__ import annotations

from aggregator.rpc.guard import caller
from aggregator.rpc.status_errors import Missing, OutOfTurn
from aggregator.run import events
from aggregator.run.backup_recovery import ShownTicket
from aggregator.run.effects import Reply
from aggregator.run_registry import RunRegistry
from aggregator.runner import Runner
from aggregator.store.database import StoreFailed
from dcfpca.errors import BadMessage
from dcfpca.identity import Role
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.types_pb2 import (
    FATE_ACCEPTED,
    FATE_DUPLICATE,
    FATE_LATE,
    FATE_REJECTED,
    Receipt,
)
from dcfpca.wire import round_messages
from dcfpca.wire.receipt import Fate
from dcfpca.wire.round_messages import ref_from_wire

MAX_TICKETS = 1000
"""The largest number of runs for which one participant may show a ticket."""

_FATES = {
    Fate.ACCEPTED: FATE_ACCEPTED,
    Fate.DUPLICATE: FATE_DUPLICATE,
    Fate.REJECTED: FATE_REJECTED,
    Fate.LATE: FATE_LATE,
}


def shown_tickets(request: pb.SubscribeRequest) -> list[ShownTicket]:
    """The tickets that a participant shows when it connects; raises BadMessage when there are too many."""
    if len(request.seen) > MAX_TICKETS:
        raise BadMessage(f"more than {MAX_TICKETS} runs are named", "end some of them")
    return [ShownTicket(ref_from_wire(one.ref), one.consensus_sha256, one.ticket) for one in request.seen]


def receipt(reply: Reply | None) -> Receipt:
    """The receipt that tells the sender this reply; without one the message was accepted."""
    reply = reply or Reply(Fate.ACCEPTED)
    return Receipt(fate=_FATES[reply.fate], reason=reply.reason)


def run_key_advertised(request: pb.AdvertiseRunKeyRequest, who: str, at: float) -> events.RunKeyAdvertised:
    """Set-up of a secure run, step 1; the key must be the caller's own."""
    key = round_messages.advert_from_wire(request.key)
    if key.name != who:
        raise BadMessage(f"the key is that of {key.name}, but {who} sent it")
    return events.RunKeyAdvertised(at=at, participant=who, run_key=key)


def group_secret_shared(request: pb.ShareGroupSecretRequest, who: str, at: float) -> events.GroupSecretShared:
    """Set-up of a secure run, step 2."""
    shares = sorted(round_messages.shares_from_wire(request.shares), key=lambda share: share.receiver)
    return events.GroupSecretShared(at=at, participant=who, shares=tuple(shares))


def misfit_reported(request: pb.ReportMisfitRequest, who: str, at: float) -> events.MisfitReported:
    """Secure run: an update that does not fit; the statement must be the caller's own."""
    misfit = round_messages.misfit_from_wire(request.misfit)
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


def fate_of(answer: Receipt) -> str:
    """The fate as logs and metrics name it."""
    return next(fate.value for fate, number in _FATES.items() if number == answer.fate)


def runner_of(registry: RunRegistry, run_id: str) -> Runner:
    """The run of this id; raises Missing, or what is wrong with a run that cannot be served.

    A participant is told to try again later: a run that is held is not over.
    """
    runner = registry.runners.get(run_id)
    if held := registry.held.get(run_id):
        kind = StoreFailed if caller().identity.role is Role.PARTICIPANT else OutOfTurn
        raise kind(f"run {run_id} cannot be served: {held.reason}", held.hint)
    if runner is None:
        raise Missing(f"there is no run {run_id[:80]!r}", "`dcfpca run list` shows them")
    return runner
