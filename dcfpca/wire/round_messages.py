"""Converts the messages of a round to protobuf and back, and encodes the consent that a site signs.

No other module maps the names of the secure sum to those of the wire.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache

from dcfpca.errors import BadIdentity, BadMessage
from dcfpca.identity import check_name
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.messages import Advert, Misfit, Roster, SealedShare
from dcfpca.spec import RunSpec
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.v1.types_pb2 import RoundRef

CONSENT_LABEL = "dcfpca/v1/consent"
_DTYPES = {"float64": types.DTYPE_FLOAT64, "uint64": types.DTYPE_UINT64, "uint32": types.DTYPE_UINT32}


def ref_to_wire(ref: AttemptRef) -> RoundRef:
    """An attempt as the wire names it."""
    return RoundRef(run_id=ref.run_id, round=ref.round, attempt=ref.attempt)


def ref_from_wire(ref: RoundRef) -> AttemptRef:
    """The attempt that a message names."""
    return AttemptRef(ref.run_id, ref.round, ref.attempt)


def update_dtype(spec: RunSpec) -> types.Dtype:
    """The number format of the updates in a run of this spec."""
    return _DTYPES[spec.update_format]


@lru_cache(maxsize=64)  # every announcement of a run names the same cohort
def checked_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of participants; raises BadMessage when one of them cannot be a participant's name."""
    try:
        return tuple(check_name(name, "participant") for name in names)
    except BadIdentity as error:
        raise BadMessage(str(error), error.hint) from None


def advert_to_wire(advert: Advert) -> pb.RunKey:
    """One member's key for the run."""
    return pb.RunKey(
        participant=advert.name,
        key=advert.key,
        kem_key=advert.kem_key,
        commitment=advert.commitment,
        binding=advert.binding,
        certificate=advert.certificate,
        signature=advert.signature,
    )


def advert_from_wire(key: pb.RunKey) -> Advert:
    """One member's key for the run; BadMessage when the name cannot be one."""
    (name,) = checked_names((key.participant,))
    return Advert(name, key.key, key.commitment, key.binding, key.certificate, key.signature, key.kem_key)


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


def consent_bytes(
    run_id: str, spec_sha256: bytes, participant: str, *, accept: bool, private: bool, reasons: Sequence[str]
) -> bytes:
    """The canonical bytes of an answer to a proposal, bound to the run, the spec and the participant."""
    answer = {
        "label": CONSENT_LABEL,
        "run": run_id,
        "spec": spec_sha256.hex(),
        "participant": participant,
        "accept": accept,
        "private": private,
        "reasons": list(reasons),
    }
    return json.dumps(answer, sort_keys=True, separators=(",", ":")).encode()
