"""Translates between protobuf messages and the session's events and actions; validates what comes in. No I/O."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np

from dcfpca.errors import BadMessage
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.messages import Advert, Complaint, Misfit, SealedShare
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire import round_messages
from dcfpca.wire.constants import MESSAGE_BYTES
from dcfpca.wire.receipt import Fate
from dcfpca.wire.round_messages import checked_names, misfit_from_wire, ref_to_wire
from dcfpca.wire.tensors import Buffer
from participant.session import Session, events
from participant.session.actions import Consent
from participant.session.events import AnnouncedConsensus, Announcement, ShownSum

TICKET_BYTES = 64
# The aggregator chooses the names of runs and exports, and the site uses them in file names.
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def decode(assignment: pb.Assignment) -> events.Assigned:
    """The event in an assignment; BadMessage when it is not one that this version knows, or is malformed.

    Tensors are taken out of the assignment, so that what is kept of the announcement is small.
    """
    if not _RUN_ID.fullmatch(assignment.run_id):
        raise BadMessage(f"{assignment.run_id[:64]!r} cannot be the name of a run")
    match assignment.WhichOneof("what"):
        case "run_proposed":
            return events.Proposed(assignment.run_proposed.spec, assignment.run_proposed.spec_sha256)
        case "round_opened":
            return opened_of(assignment.round_opened, assignment.run_id)
        case "run_finished":
            end = assignment.run_finished
            final = consensus_of(end.consensus, end.stage)
            return events.Ended(end.status, end.reason, end.round, end.spec_sha256, final)
        case "export_wanted":
            wanted = assignment.export_wanted.export_id
            if not _RUN_ID.fullmatch(wanted):
                raise BadMessage(f"{wanted[:64]!r} cannot be the name of an export")
            return events.ExportWanted(wanted)
        case "standby":
            return events.StoodBy(assignment.standby.reason)
        case "run_key_wanted" | "roster_closed" | "group_shares_relayed":
            return _set_up_step(assignment)
        case _:
            raise BadMessage("the aggregator asks for something that this version does not know", "upgrade this site")


def decode_saved(body: bytes) -> events.Assigned:
    """The event in an assignment that the site saved."""
    return decode(pb.Assignment.FromString(body))


def _set_up_step(assignment: pb.Assignment) -> events.SetUpStep:
    match assignment.WhichOneof("what"):
        case "run_key_wanted":
            wanted = assignment.run_key_wanted
            return events.KeyWanted(wanted.spec_sha256, checked_names(tuple(wanted.cohort)))
        case "roster_closed":
            return events.RosterClosed(round_messages.roster_from_wire(assignment.roster_closed.keys))
        case _:
            relayed = assignment.group_shares_relayed
            roster = round_messages.roster_from_wire(relayed.keys)
            return events.SharesRelayed(roster, round_messages.shares_from_wire(relayed.incoming))


def opened_of(opened: pb.RoundOpened, run_id: str) -> events.Opened:
    """The announcement of a round; the tensors are taken out of the message."""
    if opened.ref.run_id != run_id:
        raise BadMessage("an assignment for one run contains a message about another")
    if len(opened.ticket) > TICKET_BYTES:
        raise BadMessage("a round was opened with a ticket of an unknown kind", "upgrade this site")
    consensus = consensus_of(opened.consensus, opened.stage, opened.inline_consensus)
    shown = sum_of(opened.sum, opened.inline_sum) if opened.HasField("sum") else None
    for tensor in ("inline_consensus", "inline_sum", "sum"):
        opened.ClearField(tensor)
    ref, cohort = AttemptRef(run_id, opened.ref.round, opened.ref.attempt), checked_names(tuple(opened.cohort))
    return events.Opened(ref, opened.spec_sha256, cohort, consensus, announcement_of(opened), opened.ticket, shown)


def announcement_of(opened: pb.RoundOpened) -> Announcement:
    """What a secure run binds of the announcement."""
    return Announcement(
        opened.ref.round,
        opened.stage,
        opened.previous_sum,
        tuple(opened.exponents),
        tuple(misfit_from_wire(misfit) for misfit in opened.misfits),
        opened.memory_sha256,
    )


def sum_of(header: pb.SumHeader, total: Buffer) -> ShownSum:
    """A sum as the aggregator shows it."""
    return ShownSum(announcement_of(header.opened), header.tag, header.memory, total)


def consensus_of(header: types.TensorHeader, stage: str, inline: bytes = b"") -> AnnouncedConsensus:
    """A consensus as it is announced."""
    shape = header.rows, header.columns, header.scalars
    return AnnouncedConsensus(stage, header.dtype, *shape, header.sha256, inline)


def encode_seen(session: Session, saved: Sequence[bytes], *, whole: bool) -> pb.Seen:
    """A run that is open to this site, with the latest attempt that was opened, for an aggregator that is behind.

    `saved` is its announcement as the site keeps it, if it does. It goes back as it came; `whole`, with what the site
    has of the consensus and the memory that were announced with it, as far as one message holds them: all functions of
    opened sums.
    """
    opened, step, run = session.opened, session.step, session.secure
    if opened is None:
        return pb.Seen(ref=types.RoundRef(run_id=session.run_id))
    seen = pb.Seen(ref=ref_to_wire(opened.ref), consensus_sha256=opened.consensus.sha256, ticket=opened.ticket)
    if run is None or step is None or step.round != opened.ref.round or not saved:
        return seen
    told = pb.Assignment.FromString(saved[-1]).round_opened
    if told.ref != seen.ref:
        return seen
    seen.opened.CopyFrom(told)
    if whole and step.broadcast.size * 8 + len(run.memory) <= MESSAGE_BYTES:
        seen.opened.inline_consensus = np.ascontiguousarray(step.broadcast, "<f8").tobytes()
        if hashlib.sha256(run.memory).digest() == told.memory_sha256:
            seen.memory = run.memory
    return seen


def encode_run_key(run_id: str, advert: Advert) -> pb.AdvertiseRunKeyRequest:
    """Set-up, step 1."""
    return pb.AdvertiseRunKeyRequest(run_id=run_id, key=round_messages.advert_to_wire(advert))


def encode_group_shares(run_id: str, shares: Sequence[SealedShare]) -> pb.ShareGroupSecretRequest:
    """Set-up, step 2."""
    return pb.ShareGroupSecretRequest(run_id=run_id, shares=round_messages.shares_to_wire(shares))


def encode_misfit(ref: AttemptRef, misfit: Misfit) -> pb.ReportMisfitRequest:
    """The update does not fit."""
    return pb.ReportMisfitRequest(ref=ref_to_wire(ref), misfit=round_messages.misfit_to_wire(misfit))


def encode_complaint(run_id: str, complaint: Complaint) -> pb.ComplainRequest:
    """Why this site cannot go on."""
    return pb.ComplainRequest(
        run_id=run_id,
        accused=complaint.accused,
        error=complaint.error,
        sentence=complaint.sentence,
        certificate=complaint.certificate,
        signature=complaint.signature,
    )


def encode_consent(run_id: str, consent: Consent, signature: bytes) -> pb.RespondRequest:
    """The signed answer to a proposal."""
    return pb.RespondRequest(
        run_id=run_id,
        spec_sha256=consent.digest,
        accept=consent.accept,
        reasons=consent.reasons,
        private=consent.private,
        signature=signature,
    )


def fate_of(receipt: types.Receipt) -> Fate:
    """What the receipt says became of a message; BadMessage when it says nothing known."""
    try:
        return Fate(types.Fate.Name(receipt.fate).removeprefix("FATE_").lower())
    except ValueError:
        raise BadMessage("the aggregator did not acknowledge a message") from None
