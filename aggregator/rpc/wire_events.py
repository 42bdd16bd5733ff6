"""Messages of the wire as events of the rules, and fates as receipts."""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.run import events
from aggregator.run.backup_recovery import Seen
from aggregator.run.effects import Reply
from aggregator.run.records import Keys, Reveal
from dcfpca.errors import BadMessage
from dcfpca.fate import Fate
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.types_pb2 import (
    FATE_ACCEPTED,
    FATE_DUPLICATE,
    FATE_LATE,
    FATE_REJECTED,
    Receipt,
)

MAX_SEEN = 1000
"""Runs that one participant may have open."""

_FATES = {
    Fate.ACCEPTED: FATE_ACCEPTED,
    Fate.DUPLICATE: FATE_DUPLICATE,
    Fate.REJECTED: FATE_REJECTED,
    Fate.LATE: FATE_LATE,
}

_FROM_GOOD_TO_BAD = (FATE_DUPLICATE, FATE_ACCEPTED, FATE_LATE, FATE_REJECTED)


def seen(request: pb.SubscribeRequest) -> list[Seen]:
    """How far a participant says that it has seen its runs go."""
    if len(request.seen) > MAX_SEEN:
        raise BadMessage(f"more than {MAX_SEEN} runs are named", "end some of them")
    return [
        Seen(one.ref.run_id, one.ref.round, one.ref.attempt, one.consensus_sha256, one.ticket) for one in request.seen
    ]


def receipt(reply: Reply | None) -> Receipt:
    """What to tell the sender."""
    reply = reply or Reply(Fate.ACCEPTED)
    return Receipt(fate=_FATES[reply.fate], reason=reply.reason)


def keys_advertised(request: pb.AdvertiseKeysRequest, who: str, at: float) -> events.KeysAdvertised:
    """Step 1; the keys must be the caller's own."""
    keys = request.keys
    if keys.participant != who:
        raise BadMessage(f"the keys are those of {keys.participant or 'nobody'}, but {who} sent them")
    return events.KeysAdvertised(
        at=at,
        participant=who,
        round=request.ref.round,
        attempt=request.ref.attempt,
        keys=Keys(
            sealing_key=keys.sealing_key,
            masking_key=keys.masking_key,
            commitment=keys.commitment,
            binding=keys.binding,
            certificate=keys.certificate,
            signature=keys.signature,
        ),
    )


def shares_sent(request: pb.ShareKeysRequest, who: str, at: float) -> events.SharesSent:
    """Step 2; one sealed pair for each recipient, all from the caller."""
    if any(share.sender != who for share in request.shares):
        raise BadMessage(f"shares of somebody else came from {who}")
    shares = {share.recipient: share.ciphertext for share in request.shares}
    if len(shares) != len(request.shares):
        raise BadMessage("two shares are for the same recipient")
    return events.SharesSent(
        at=at, participant=who, round=request.ref.round, attempt=request.ref.attempt, shares=shares
    )


def bound_stated(request: pb.StateBoundRequest | pb.ShareKeysRequest, who: str, at: float) -> events.BoundStated:
    """Step 3, by itself or with the shares."""
    return events.BoundStated(
        at=at,
        participant=who,
        round=request.ref.round,
        attempt=request.ref.attempt,
        exponent=request.exponent,
    )


def survivors_attested(request: pb.AttestSurvivorsRequest, who: str, at: float) -> events.SurvivorsAttested:
    """Step 5."""
    return events.SurvivorsAttested(
        at=at,
        participant=who,
        round=request.ref.round,
        attempt=request.ref.attempt,
        signature=request.signature,
    )


def shares_revealed(request: pb.UnmaskRequest, who: str, at: float) -> events.SharesRevealed:
    """Step 6."""
    reveal = Reveal(
        survivor_shares=tuple((share.owner, share.share) for share in request.survivor_shares),
        dropout_shares=tuple((share.owner, share.share) for share in request.dropout_shares),
    )
    return events.SharesRevealed(
        at=at, participant=who, round=request.ref.round, attempt=request.ref.attempt, reveal=reveal
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
    """One receipt for several things that came in one message: that of the one which fared worst."""
    return max(receipts, key=lambda one: _FROM_GOOD_TO_BAD.index(one.fate))


def word_of(answer: Receipt) -> str:
    """The fate as the word that logs and metrics use."""
    return next(fate.value for fate, number in _FATES.items() if number == answer.fate)
