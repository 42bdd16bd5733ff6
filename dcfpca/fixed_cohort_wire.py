"""Converts messages of the fixed-cohort protocol (v2) to protobuf and back; no other module maps their names."""

from __future__ import annotations

from collections.abc import Iterable

from dcfpca.chunked_vectors import DigestedBytes
from dcfpca.dropout_recovery_wire import names_from_wire
from dcfpca.secagg.fixed_cohort import Advert, BlockLayout, Misfit, Opening, Roster, SealedShare
from dcfpca.secagg.fixed_cohort.context import consensus_digest
from dcfpca.v1 import rounds_pb2 as pb


def advert_to_wire(advert: Advert) -> pb.RunKey:
    """One member's key for the run."""
    return pb.RunKey(
        participant=advert.name,
        key=advert.key,
        commitment=advert.commitment,
        binding=advert.binding,
        certificate=advert.certificate,
        signature=advert.signature,
    )


def advert_from_wire(key: pb.RunKey) -> Advert:
    """One member's key for the run; BadMessage when the name cannot be one."""
    (name,) = names_from_wire([key.participant])
    return Advert(name, key.key, key.commitment, key.binding, key.certificate, key.signature)


def roster_to_wire(roster: Roster) -> list[pb.RunKey]:
    """The keys of the whole cohort, in name order."""
    return [advert_to_wire(advert) for advert in roster.adverts]


def roster_from_wire(keys: Iterable[pb.RunKey]) -> Roster:
    """The keys of the whole cohort, in the order in which they came."""
    return Roster(tuple(advert_from_wire(key) for key in keys))


def shares_to_wire(shares: Iterable[SealedShare]) -> list[pb.SealedGroupShare]:
    """Sealed shares of the group secret."""
    return [
        pb.SealedGroupShare(
            sender=share.sender, recipient=share.receiver, ciphertext=share.sealed, signature=share.signature
        )
        for share in shares
    ]


def shares_from_wire(shares: Iterable[pb.SealedGroupShare]) -> tuple[SealedShare, ...]:
    """Sealed shares of the group secret."""
    return tuple(SealedShare(share.sender, share.recipient, share.ciphertext, share.signature) for share in shares)


def misfit_to_wire(misfit: Misfit) -> pb.Misfit:
    """The signed statement that an update does not fit."""
    return pb.Misfit(
        participant=misfit.name, context=misfit.context, certificate=misfit.certificate, signature=misfit.signature
    )


def misfit_from_wire(misfit: pb.Misfit) -> Misfit:
    """The signed statement that an update does not fit."""
    return Misfit(misfit.participant, misfit.context, misfit.certificate, misfit.signature)


def opening_from_wire(opened: pb.RoundOpened, layout: BlockLayout, consensus: DigestedBytes) -> Opening:
    """The opening of a round, with the digest taken over the consensus bytes that were received."""
    told = consensus_digest(consensus.sha, bytes([opened.stage]), opened.memory_sha256)
    misfits = tuple(misfit_from_wire(misfit) for misfit in opened.misfits)
    return Opening(opened.ref.round, told, opened.previous_sum, layout, tuple(opened.exponents), misfits)
