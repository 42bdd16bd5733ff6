"""Translates between protobuf messages and the session's events and actions; validates what comes in. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dcfpca import dropout_recovery_wire as secagg_wire
from dcfpca import fixed_cohort_wire
from dcfpca.attempt_ref import AttemptRef
from dcfpca.dropout_recovery_wire import names_from_wire, ref_to_wire
from dcfpca.errors import BadMessage
from dcfpca.message_fate import Fate
from dcfpca.rpca.method import Stage
from dcfpca.secagg import Advert, Reveal, SealedShare, Survivors, fixed_cohort
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
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
            return _secure_step(assignment)


def _set_up_step(assignment: pb.Assignment) -> events.SetUpStep:
    match assignment.WhichOneof("what"):
        case "run_key_wanted":
            wanted = assignment.run_key_wanted
            return events.KeyWanted(wanted.spec_sha256, names_from_wire(wanted.cohort))
        case "roster_closed":
            return events.RosterClosed(fixed_cohort_wire.roster_from_wire(assignment.roster_closed.keys))
        case _:
            relayed = assignment.group_shares_relayed
            roster = fixed_cohort_wire.roster_from_wire(relayed.keys)
            return events.SharesRelayed(roster, fixed_cohort_wire.shares_from_wire(relayed.incoming))


def _secure_step(assignment: pb.Assignment) -> events.SecureStep:
    run_id = assignment.run_id
    match assignment.WhichOneof("what"):
        case "keys_relayed":
            relayed = assignment.keys_relayed
            return events.RosterRelayed(_ref(relayed.ref, run_id), secagg_wire.roster_from_wire(relayed))
        case "mask_wanted":
            wanted = assignment.mask_wanted
            return events.MaskWanted(_ref(wanted.ref, run_id), secagg_wire.delivery_from_wire(wanted))
        case "survivors_announced":
            told = assignment.survivors_announced
            return events.SurvivorsAnnounced(_ref(told.ref, run_id), Survivors(names_from_wire(told.survivors)))
        case "unmask_wanted":
            unmask = assignment.unmask_wanted
            return events.UnmaskWanted(_ref(unmask.ref, run_id), secagg_wire.unmask_request_from_wire(unmask))
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


def _consensus(header: types.TensorHeader, stage: int, inline: bytes = b"") -> AnnouncedConsensus:
    """With a copy of the header: a reference to it would keep the whole assignment in memory."""
    own = types.TensorHeader()
    own.CopyFrom(header)
    if stage not in set(Stage):
        raise BadMessage("a round was opened in a stage that this version does not know", "upgrade this site")
    return AnnouncedConsensus(own, inline, Stage(stage))


def _export_id(text: str) -> str:
    if not _RUN_ID.fullmatch(text):
        raise BadMessage(f"{text[:64]!r} cannot be the name of an export")
    return text


def encode_advert(ref: AttemptRef, advert: Advert) -> pb.AdvertiseKeysRequest:
    """Step 1 of the secure sum."""
    return pb.AdvertiseKeysRequest(ref=ref_to_wire(ref), keys=secagg_wire.advert_to_wire(advert))


def encode_shares(ref: AttemptRef, shares: Sequence[SealedShare]) -> pb.ShareKeysRequest:
    """Step 2."""
    return pb.ShareKeysRequest(ref=ref_to_wire(ref), shares=secagg_wire.shares_to_wire(shares))


def encode_run_key(run_id: str, advert: fixed_cohort.Advert) -> pb.AdvertiseRunKeyRequest:
    """Fixed cohort, set-up 1."""
    return pb.AdvertiseRunKeyRequest(run_id=run_id, key=fixed_cohort_wire.advert_to_wire(advert))


def encode_group_shares(run_id: str, shares: Sequence[fixed_cohort.SealedShare]) -> pb.ShareGroupSecretRequest:
    """Fixed cohort, set-up 2."""
    return pb.ShareGroupSecretRequest(run_id=run_id, shares=fixed_cohort_wire.shares_to_wire(shares))


def encode_misfit(ref: AttemptRef, misfit: fixed_cohort.Misfit) -> pb.ReportMisfitRequest:
    """Fixed cohort: the update does not fit."""
    return pb.ReportMisfitRequest(ref=ref_to_wire(ref), misfit=fixed_cohort_wire.misfit_to_wire(misfit))


def encode_complaint(run_id: str, complaint: fixed_cohort.Complaint) -> pb.ComplainRequest:
    """Fixed cohort: why this site cannot go on."""
    return pb.ComplainRequest(
        run_id=run_id,
        accused=complaint.accused,
        error=complaint.error,
        sentence=complaint.sentence,
        certificate=complaint.certificate,
        signature=complaint.signature,
    )


def encode_reveal(ref: AttemptRef, reveal: Reveal) -> pb.UnmaskRequest:
    """Step 6."""
    return secagg_wire.reveal_to_wire(ref_to_wire(ref), reveal)


def fate_of(receipt: types.Receipt) -> Fate:
    """What the receipt says became of a message; BadMessage when it says nothing known."""
    try:
        return Fate(types.Fate.Name(receipt.fate).removeprefix("FATE_").lower())
    except ValueError:
        raise BadMessage("the aggregator did not say what became of a message") from None
