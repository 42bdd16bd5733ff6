"""Translates between protobuf messages and the session's events and actions; validates what comes in. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dcfpca import secagg
from dcfpca.errors import BadMessage
from dcfpca.run_references import AttemptRef
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire import round_messages
from dcfpca.wire.receipt import Fate
from dcfpca.wire.round_messages import names_from_wire, ref_to_wire
from participant.session import events
from participant.session.events import AnnouncedConsensus, ShownSum

TICKET_BYTES = 64
# The aggregator chooses the names of runs, and the site uses them in file names.
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def decode(assignment: pb.Assignment) -> events.Assigned:
    """The event in an assignment; BadMessage when it is not one that this version knows, or is malformed.

    Tensors are taken out of the assignment, so that what is kept of the announcement is small.
    """
    check_run_id(assignment.run_id)
    match assignment.WhichOneof("what"):
        case "run_proposed":
            return events.Proposed(assignment.run_proposed.spec, assignment.run_proposed.spec_sha256)
        case "round_opened":
            return _opened(assignment.round_opened, assignment.run_id)
        case "run_finished":
            told = assignment.run_finished
            final = _consensus(told.consensus, told.stage)
            return events.Ended(told.status, told.reason, told.round, told.spec_sha256, final)
        case "export_wanted":
            return events.ExportWanted(_export_id(assignment.export_wanted.export_id))
        case "standby":
            return events.StoodBy(assignment.standby.reason)
        case "run_key_wanted" | "roster_closed" | "group_shares_relayed":
            return _set_up_step(assignment)
        case _:
            raise BadMessage("the aggregator asks for something that this version does not know", "upgrade this site")


def _set_up_step(assignment: pb.Assignment) -> events.SetUpStep:
    match assignment.WhichOneof("what"):
        case "run_key_wanted":
            wanted = assignment.run_key_wanted
            return events.KeyWanted(wanted.spec_sha256, names_from_wire(wanted.cohort))
        case "roster_closed":
            return events.RosterClosed(round_messages.roster_from_wire(assignment.roster_closed.keys))
        case _:
            relayed = assignment.group_shares_relayed
            roster = round_messages.roster_from_wire(relayed.keys)
            return events.SharesRelayed(roster, round_messages.shares_from_wire(relayed.incoming))


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
    consensus = _consensus(opened.consensus, opened.stage, opened.inline_consensus)
    ref, cohort = _ref(opened.ref, run_id), names_from_wire(opened.cohort)
    shown = _shown(opened)
    for tensor in ("inline_consensus", "inline_sum", "sum"):
        opened.ClearField(tensor)
    return events.Opened(
        ref, opened.spec_sha256, cohort, consensus, ticket=_ticket(opened), announced=opened, shown=shown
    )


def _shown(opened: pb.RoundOpened) -> ShownSum | None:
    if not opened.HasField("sum"):
        return None
    header = pb.SumHeader()
    header.CopyFrom(opened.sum)
    return ShownSum(header, opened.inline_sum)


def _ticket(opened: pb.RoundOpened) -> bytes:
    if len(opened.ticket) > TICKET_BYTES:
        raise BadMessage("a round was opened with a ticket of an unknown kind", "upgrade this site")
    return opened.ticket


def encode_seen(opened: events.Opened) -> pb.Seen:
    """The latest attempt that was opened to this site, for an aggregator restored from an older backup."""
    return pb.Seen(ref=ref_to_wire(opened.ref), consensus_sha256=opened.consensus.sha256, ticket=opened.ticket)


def _consensus(header: types.TensorHeader, stage: str, inline: bytes = b"") -> AnnouncedConsensus:
    """With a copy of the header: a reference to it would keep the whole assignment in memory."""
    own = types.TensorHeader()
    own.CopyFrom(header)
    return AnnouncedConsensus(own, inline, stage)


def _export_id(text: str) -> str:
    if not _RUN_ID.fullmatch(text):
        raise BadMessage(f"{text[:64]!r} cannot be the name of an export")
    return text


def encode_run_key(run_id: str, advert: secagg.Advert) -> pb.AdvertiseRunKeyRequest:
    """Set-up, step 1."""
    return pb.AdvertiseRunKeyRequest(run_id=run_id, key=round_messages.advert_to_wire(advert))


def encode_group_shares(run_id: str, shares: Sequence[secagg.SealedShare]) -> pb.ShareGroupSecretRequest:
    """Set-up, step 2."""
    return pb.ShareGroupSecretRequest(run_id=run_id, shares=round_messages.shares_to_wire(shares))


def encode_misfit(ref: AttemptRef, misfit: secagg.Misfit) -> pb.ReportMisfitRequest:
    """The update does not fit."""
    return pb.ReportMisfitRequest(ref=ref_to_wire(ref), misfit=round_messages.misfit_to_wire(misfit))


def encode_complaint(run_id: str, complaint: secagg.Complaint) -> pb.ComplainRequest:
    """Why this site cannot go on."""
    return pb.ComplainRequest(
        run_id=run_id,
        accused=complaint.accused,
        error=complaint.error,
        sentence=complaint.sentence,
        certificate=complaint.certificate,
        signature=complaint.signature,
    )


def fate_of(receipt: types.Receipt) -> Fate:
    """What the receipt says became of a message; BadMessage when it says nothing known."""
    try:
        return Fate(types.Fate.Name(receipt.fate).removeprefix("FATE_").lower())
    except ValueError:
        raise BadMessage("the aggregator did not say what became of a message") from None
