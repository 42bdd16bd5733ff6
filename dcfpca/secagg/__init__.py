"""The secure sum: the aggregator learns the total of the updates and nothing else.

Two protocols. `fixed_cohort` is the default: every sum is over the whole cohort of the run. `dropout_recovery`, whose
names are exported here, goes on without participants that drop out (`dropouts = "go-on"`).

One attempt at one round with dropout recovery, both sides. `context` is the same at both (see `Context`); `identity` is
the participant's certificate with its signing and verifying functions; `seed` is 32 bytes of fresh entropy, which the
participant saves before use.

    participant                                        aggregator
    side = ParticipantSide(context, identity, seed)
    advert = side.advertise()                     →    accept_advert(context, advert, verify)
                                                       closed = close_roster(context, adverts)
                                                  ←    roster_for(closed, name)
    shares = side.share(roster)                   →    accept_shares(closed, name, shares)
      … the local step ends …
    bound = side.state_bound(vector)              →    agreement = agree(closed, shared_names, {name: exponent})
                                                  ←    delivery_for(agreement, name, all_shares)
    side.agree(delivery)
    masked = side.mask(vector)                    →    total += masked          (uint64, wraps around)
                                                       survivors = close_survivors(closed, agreement, delivered_names)
                                                  ←    survivors
    attestation = side.attest(survivors)          →    accept_attestation(closed, agreement, survivors, …, verify)
                                                       enough(closed, survivors.members, attestations)
                                                  ←    request_for(closed, survivors, name, attestations)
    reveal = side.reveal(request)                 →    accept_reveal(closed, agreement, survivors, reveal)
                                                       enough(closed, agreement.members, reveals)
                                                       masks = recover(closed, agreement, survivors, reveals)
                                                       remove_masks(total, masks)
                                                       sum = open_sum(context, agreement, total)

The participant saves the seed and every message it accepts before it sends an answer. After a crash it makes a new side
from the saved seed and gives it the saved messages again, which yields the same bytes and binds it as before; a message
that contradicts them is refused by name (see `errors`). When a round is reopened, the new side is given
`opened_before=old_side.opened`.
"""

from dcfpca.secagg.dropout_recovery.aggregator import (
    ClosedRoster,
    accept_advert,
    accept_attestation,
    accept_reveal,
    accept_shares,
    agree,
    close_roster,
    close_survivors,
    delivery_for,
    enough,
    request_for,
    roster_for,
)
from dcfpca.secagg.dropout_recovery.context import Context
from dcfpca.secagg.dropout_recovery.messages import (
    Advert,
    Agreement,
    Attestation,
    Bound,
    Delivery,
    Reveal,
    Roster,
    SealedShare,
    Share,
    Survivors,
    UnmaskRequest,
)
from dcfpca.secagg.dropout_recovery.participant import ParticipantSide, Pinned
from dcfpca.secagg.dropout_recovery.unmask import Masks, open_sum, recover, remove_masks
from dcfpca.secagg.identity import SigningIdentity
from dcfpca.secagg.ring_fixed_point import dtype_of

__all__ = [
    "Advert",
    "Agreement",
    "Attestation",
    "Bound",
    "ClosedRoster",
    "Context",
    "Delivery",
    "Masks",
    "ParticipantSide",
    "Pinned",
    "Reveal",
    "Roster",
    "SealedShare",
    "Share",
    "SigningIdentity",
    "Survivors",
    "UnmaskRequest",
    "accept_advert",
    "accept_attestation",
    "accept_reveal",
    "accept_shares",
    "agree",
    "close_roster",
    "close_survivors",
    "delivery_for",
    "dtype_of",
    "enough",
    "open_sum",
    "recover",
    "remove_masks",
    "request_for",
    "roster_for",
]
