"""Converts messages of the dropout-recovery protocol (v1) to protobuf and back; no other module maps their names.

The wire says sealing key, masking key, recipient, ciphertext, survivor and dropout shares; `dcfpca.secagg` says seal
key, mask key, receiver, sealed, seed and key shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dcfpca.attempt_ref import AttemptRef
from dcfpca.errors import BadIdentity, BadMessage
from dcfpca.identity import check_name
from dcfpca.secagg import (
    Advert,
    Agreement,
    Attestation,
    Delivery,
    Reveal,
    Roster,
    SealedShare,
    Share,
    Survivors,
    UnmaskRequest,
)
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.types_pb2 import RoundRef


def ref_to_wire(ref: AttemptRef) -> RoundRef:
    """An attempt as the wire names it."""
    return RoundRef(run_id=ref.run_id, round=ref.round, attempt=ref.attempt)


def ref_from_wire(ref: RoundRef) -> AttemptRef:
    """The attempt that a message names."""
    return AttemptRef(ref.run_id, ref.round, ref.attempt)


def names_from_wire(names: Sequence[str]) -> tuple[str, ...]:
    """Names of participants; raises BadMessage when one of them cannot be a participant's name."""
    try:
        return tuple(check_name(name, "participant") for name in names)
    except BadIdentity as error:
        raise BadMessage(str(error), error.hint) from None


def advert_to_wire(advert: Advert) -> pb.AdvertisedKeys:
    """Step 1: public keys, from a participant or relayed to its neighbours."""
    return pb.AdvertisedKeys(
        participant=advert.name,
        sealing_key=advert.seal_key,
        masking_key=advert.mask_key,
        commitment=advert.commitment,
        binding=advert.binding,
        certificate=advert.certificate,
        signature=advert.signature,
    )


def advert_from_wire(keys: pb.AdvertisedKeys) -> Advert:
    """Inverse of `advert_to_wire`."""
    return Advert(
        name=keys.participant,
        seal_key=keys.sealing_key,
        mask_key=keys.masking_key,
        commitment=keys.commitment,
        binding=keys.binding,
        certificate=keys.certificate,
        signature=keys.signature,
    )


def roster_to_wire(ref: RoundRef, roster: Roster) -> pb.KeysRelayed:
    """The roster as it is relayed to one participant."""
    keys = [advert_to_wire(advert) for advert in roster.adverts]
    return pb.KeysRelayed(ref=ref, roster=roster.members, keys=keys, root=roster.root, path=roster.path)


def roster_from_wire(relayed: pb.KeysRelayed) -> Roster:
    """Inverse of `roster_to_wire`."""
    adverts = tuple(advert_from_wire(keys) for keys in relayed.keys)
    return Roster(names_from_wire(relayed.roster), relayed.root, tuple(relayed.path), adverts)


def shares_to_wire(shares: Iterable[SealedShare]) -> list[pb.SealedShares]:
    """Step 2: sealed shares, from a participant or relayed to their receivers."""
    return [pb.SealedShares(sender=s.sender, recipient=s.receiver, ciphertext=s.sealed) for s in shares]


def shares_from_wire(shares: Iterable[pb.SealedShares]) -> tuple[SealedShare, ...]:
    """Inverse of `shares_to_wire`."""
    return tuple(SealedShare(share.sender, share.recipient, share.ciphertext) for share in shares)


def delivery_to_wire(ref: RoundRef, delivery: Delivery) -> pb.MaskWanted:
    """The agreement and the shares for one participant."""
    agreement, incoming = delivery.agreement, shares_to_wire(delivery.shares)
    return pb.MaskWanted(ref=ref, members=agreement.members, exponent=agreement.exponent, incoming=incoming)


def delivery_from_wire(wanted: pb.MaskWanted) -> Delivery:
    """Inverse of `delivery_to_wire`."""
    agreement = Agreement(names_from_wire(wanted.members), wanted.exponent)
    return Delivery(agreement, shares_from_wire(wanted.incoming))


def unmask_request_to_wire(ref: RoundRef, request: UnmaskRequest) -> pb.UnmaskWanted:
    """The request for one survivor's shares."""
    attested = [pb.Attestation(participant=one.name, signature=one.signature) for one in request.attestations]
    return pb.UnmaskWanted(ref=ref, survivors=request.survivors.members, attestations=attested)


def unmask_request_from_wire(wanted: pb.UnmaskWanted) -> UnmaskRequest:
    """Inverse of `unmask_request_to_wire`."""
    attestations = tuple(Attestation(item.participant, item.signature) for item in wanted.attestations)
    return UnmaskRequest(Survivors(names_from_wire(wanted.survivors)), attestations)


def reveal_to_wire(ref: RoundRef, reveal: Reveal) -> pb.UnmaskRequest:
    """Step 6: the shares that a survivor releases."""
    return pb.UnmaskRequest(
        ref=ref,
        survivor_shares=[pb.RevealedShare(owner=s.owner, share=s.value) for s in reveal.seed_shares],
        dropout_shares=[pb.RevealedShare(owner=s.owner, share=s.value) for s in reveal.key_shares],
    )


def reveal_from_wire(request: pb.UnmaskRequest, sender: str) -> Reveal:
    """Inverse of `reveal_to_wire`; the wire leaves out the sender's name."""
    return Reveal(
        name=sender,
        seed_shares=tuple(Share(one.owner, one.share) for one in request.survivor_shares),
        key_shares=tuple(Share(one.owner, one.share) for one in request.dropout_shares),
    )
