"""Translates between protobuf messages and the session's events and actions; validates what comes in. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dcfpca.attempt_ref import AttemptRef
from dcfpca.errors import BadIdentity, BadMessage
from dcfpca.fate import Fate
from dcfpca.identity import check_name
from dcfpca.secagg import (
    Advert,
    Agreement,
    Attestation,
    Delivery,
    Reveal,
    Roster,
    SealedShare,
    Survivors,
    UnmaskRequest,
)
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from participant.session import events
from participant.session.events import AnnouncedConsensus

TICKET_BYTES = 64
# The aggregator chooses the names of runs, and the site uses them in file names.
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def decode(assignment: pb.Assignment) -> events.Assigned:
    """The event in an assignment; BadMessage when it is not one that this version knows, or is malformed."""
    check_run_id(assignment.run_id)
    match assignment.WhichOneof("what"):
        case "run_proposed":
            return events.Proposed(assignment.run_proposed.spec, assignment.run_proposed.spec_sha256)
        case "round_opened":
            return _opened(assignment.round_opened, assignment.run_id)
        case "run_finished":
            told = assignment.run_finished
            return events.Ended(told.status, told.reason, told.round, told.spec_sha256, _consensus(told.consensus))
        case "export_wanted":
            return events.ExportWanted(_export_id(assignment.export_wanted.export_id))
        case "standby":
            return events.StoodBy(assignment.standby.reason)
        case _:
            return _secure_step(assignment)


def _secure_step(assignment: pb.Assignment) -> events.SecureStep:
    run_id = assignment.run_id
    match assignment.WhichOneof("what"):
        case "keys_relayed":
            relayed = assignment.keys_relayed
            return events.RosterRelayed(_ref(relayed.ref, run_id), _roster(relayed))
        case "mask_wanted":
            wanted = assignment.mask_wanted
            return events.MaskWanted(_ref(wanted.ref, run_id), _delivery(wanted))
        case "survivors_announced":
            told = assignment.survivors_announced
            return events.SurvivorsAnnounced(_ref(told.ref, run_id), Survivors(_names(told.survivors)))
        case "unmask_wanted":
            return events.UnmaskWanted(_ref(assignment.unmask_wanted.ref, run_id), _request(assignment.unmask_wanted))
        case _:
            raise BadMessage("the aggregator asks for something that this version does not know", "upgrade this site")


def check_run_id(run_id: str) -> str:
    """Return the name if it is safe in a file name; BadMessage otherwise."""
    if not _RUN_ID.fullmatch(run_id):
        raise BadMessage(f"{run_id[:64]!r} cannot be the name of a run")
    return run_id


def _ref(ref: types.RoundRef, run_id: str) -> AttemptRef:
    if ref.run_id != run_id:
        raise BadMessage("an assignment for one run contains a message about another")
    return AttemptRef(ref.run_id, ref.round, ref.attempt)


def _opened(opened: pb.RoundOpened, run_id: str) -> events.Opened:
    consensus = _consensus(opened.consensus, opened.inline_consensus)
    ref, cohort = _ref(opened.ref, run_id), _names(opened.cohort)
    return events.Opened(ref, opened.spec_sha256, cohort, consensus, ticket=_ticket(opened))


def _ticket(opened: pb.RoundOpened) -> bytes:
    if len(opened.ticket) > TICKET_BYTES:
        raise BadMessage("a round was opened with a ticket of an unknown kind", "upgrade this site")
    return opened.ticket


def encode_seen(opened: events.Opened) -> pb.Seen:
    """The latest attempt that was opened to this site, for an aggregator restored from an older backup."""
    return pb.Seen(ref=encode_ref(opened.ref), consensus_sha256=opened.consensus.sha256, ticket=opened.ticket)


def _consensus(header: types.TensorHeader, inline: bytes = b"") -> AnnouncedConsensus:
    """With a copy of the header: a reference to it would keep the whole assignment in memory."""
    own = types.TensorHeader()
    own.CopyFrom(header)
    return AnnouncedConsensus(own, inline)


def _export_id(text: str) -> str:
    if not _RUN_ID.fullmatch(text):
        raise BadMessage(f"{text[:64]!r} cannot be the name of an export")
    return text


def _names(names: Sequence[str]) -> tuple[str, ...]:
    try:
        return tuple(check_name(name, "participant") for name in names)
    except BadIdentity as error:
        raise BadMessage(str(error), error.hint) from None


def _roster(relayed: pb.KeysRelayed) -> Roster:
    adverts = tuple(
        Advert(
            name=keys.participant,
            seal_key=keys.sealing_key,
            mask_key=keys.masking_key,
            commitment=keys.commitment,
            binding=keys.binding,
            certificate=keys.certificate,
            signature=keys.signature,
        )
        for keys in relayed.keys
    )
    return Roster(_names(relayed.roster), relayed.root, tuple(relayed.path), adverts)


def _delivery(wanted: pb.MaskWanted) -> Delivery:
    shares = tuple(SealedShare(item.sender, item.recipient, item.ciphertext) for item in wanted.incoming)
    return Delivery(Agreement(_names(wanted.members), wanted.exponent), shares)


def _request(wanted: pb.UnmaskWanted) -> UnmaskRequest:
    attestations = tuple(Attestation(item.participant, item.signature) for item in wanted.attestations)
    return UnmaskRequest(Survivors(_names(wanted.survivors)), attestations)


def encode_ref(ref: AttemptRef) -> types.RoundRef:
    """The protobuf form of the name of an attempt."""
    return types.RoundRef(run_id=ref.run_id, round=ref.round, attempt=ref.attempt)


def encode_advert(ref: AttemptRef, advert: Advert) -> pb.AdvertiseKeysRequest:
    """Step 1 of the secure sum."""
    keys = pb.AdvertisedKeys(
        participant=advert.name,
        sealing_key=advert.seal_key,
        masking_key=advert.mask_key,
        commitment=advert.commitment,
        binding=advert.binding,
        certificate=advert.certificate,
        signature=advert.signature,
    )
    return pb.AdvertiseKeysRequest(ref=encode_ref(ref), keys=keys)


def encode_shares(ref: AttemptRef, shares: Sequence[SealedShare]) -> pb.ShareKeysRequest:
    """Step 2."""
    sealed = [pb.SealedShares(sender=s.sender, recipient=s.receiver, ciphertext=s.sealed) for s in shares]
    return pb.ShareKeysRequest(ref=encode_ref(ref), shares=sealed)


def encode_reveal(ref: AttemptRef, reveal: Reveal) -> pb.UnmaskRequest:
    """Step 6."""
    return pb.UnmaskRequest(
        ref=encode_ref(ref),
        survivor_shares=[pb.RevealedShare(owner=s.owner, share=s.value) for s in reveal.seed_shares],
        dropout_shares=[pb.RevealedShare(owner=s.owner, share=s.value) for s in reveal.key_shares],
    )


def fate_of(receipt: types.Receipt) -> Fate:
    """What the receipt says became of a message; BadMessage when it says nothing known."""
    try:
        return Fate(types.Fate.Name(receipt.fate).removeprefix("FATE_").lower())
    except ValueError:
        raise BadMessage("the aggregator did not say what became of a message") from None
