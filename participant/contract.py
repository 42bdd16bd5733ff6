"""What may leave a site in a run: the declared messages, each of its exact or largest size. Pure.

Every outgoing message is checked here against the spec that the site signed, by code independent of the code that
built it. A message that was not declared raises EgressViolation and is not sent.
"""

from __future__ import annotations

import hashlib
import json

from dcfpca.errors import DcfpcaError
from dcfpca.rpca.refinement.closing_plan import CLOSING
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.homomorphic_mac import P as TAG_FIELD
from dcfpca.secagg.keys import KEM_KEY_BYTES, KEY_BYTES
from dcfpca.secagg.set_up import SEALED_BYTES as SEALED_GROUP_SHARE_BYTES
from dcfpca.terms import Terms
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.constants import ARTIFACTS, MESSAGE_BYTES
from dcfpca.wire.round_messages import update_dtype
from dcfpca.wire.tensors import Buffer, header_with
from participant.session.actions import SignedEvidence
from participant.state.ledger import EVIDENCE, Item

CERTIFICATE_BYTES = 16 << 10
TICKET_BYTES = 64
SIGNATURE_BYTES = 104  # ECDSA P-384 in DER
SENTENCE_CHARACTERS = 2000


class EgressViolation(DcfpcaError):
    """A message that was not declared was about to leave the site: a defect of the software, not a user error."""


Update = tuple[Buffer, int, bytes]
"""The bytes of an update, and the tag and the context of a masked one; 0 and empty of a plain one."""


class Contract:
    """What the site agreed to send in one run, worked out once; `name` is the site's own."""

    def __init__(self, run_id: str, name: str, terms: Terms) -> None:
        self.run_id, self.name, self.terms = run_id, name, terms
        self.dtype = update_dtype(terms.spec)
        self.masked = self.dtype != types.DTYPE_FLOAT64
        """Whether updates leave masked, so that key material leaves, too."""
        self.rounds = {stage.name: _rounds_of(stage.name, terms) for stage in terms.method.stages}
        """The rounds in which each stage may send an update."""


def _rounds_of(stage: str, terms: Terms) -> range:
    first = 0 if stage == terms.method.stages[0].name else 1
    last = terms.spec.last_round if stage in CLOSING else terms.spec.last_fit_round
    return range(first, last + 1)


def update_item(
    contract: Contract, ref: AttemptRef, update: Update, stage: str, ticket: bytes = b""
) -> tuple[Item, pb.UpdateHeader]:
    """An update of exactly the length that its stage declares, and the header that announces it in that shape."""
    payload, tag, context = update
    masked = contract.masked
    _require(ref.run_id == contract.run_id, "a message for another run")
    _require(len(ticket) <= TICKET_BYTES, "a ticket of an undeclared size")
    _require(len(context) == (32 if masked else 0), "a context of an undeclared size")
    _require(0 <= tag < TAG_FIELD if masked else tag == 0, "a tag out of range")
    _require(stage in contract.rounds, "an update of a stage the spec does not have")
    _require(ref.round in contract.rounds[stage], "an update of a round the spec does not have")
    tensor = header_with(hashlib.sha256(payload).digest(), contract.terms.method.stage(stage).up, contract.dtype)
    _require(len(payload) == contract.terms.update_bytes[stage], "more or fewer bytes than the declared shape has")
    number = types.Dtype.Name(tensor.dtype).removeprefix("DTYPE_").lower()
    shape = f"{tensor.rows} × {tensor.columns} + {tensor.scalars} {number}"
    kind = "masked update" if masked else "plain update"
    item = Item(kind, shape, len(payload), tensor.sha256, ref.run_id, ref.round, ref.attempt)
    place = types.RoundRef(run_id=ref.run_id, round=ref.round, attempt=ref.attempt)
    return item, pb.UpdateHeader(ref=place, tensor=tensor, ticket=ticket, tag=tag, context=context)


def run_key_item(contract: Contract, request: pb.AdvertiseRunKeyRequest) -> Item:
    """The public keys of the run, a commitment and a signature."""
    _check_secure(contract, request.run_id)
    key = request.key
    _require(key.participant == contract.name, "a key under another name")
    _require({len(key.key), len(key.commitment), len(key.binding)} == {KEY_BYTES}, "a key of an undeclared size")
    _require(len(key.kem_key) == KEM_KEY_BYTES, "a key of an undeclared size")
    _check_signed(key.certificate, key.signature)
    return _item("run key", "1 key", request, None, request.run_id)


def group_shares_item(contract: Contract, request: pb.ShareGroupSecretRequest) -> Item:
    """One sealed share of the group secret for every other member."""
    _check_secure(contract, request.run_id)
    recipients = [share.recipient for share in request.shares]
    _require(len(set(recipients)) == len(recipients), "two sealed shares for one member")
    _require(contract.name not in recipients, "a sealed share for the site itself")
    for share in request.shares:
        _require(share.sender == contract.name, "a share under another name")
        _require(len(share.ciphertext) == SEALED_GROUP_SHARE_BYTES, "a share of an undeclared size")
        _require(0 < len(share.signature) <= SIGNATURE_BYTES, "a signature of an undeclared size")
    return _item("group shares", f"{len(recipients)} shares", request, None, request.run_id)


def misfit_item(contract: Contract, request: pb.ReportMisfitRequest) -> Item:
    """One signed bit."""
    _check_secure(contract, request.ref.run_id)
    _require(request.misfit.participant == contract.name, "a misfit under another name")
    _require(len(request.misfit.context) == 32, "a context of an undeclared size")
    _check_signed(request.misfit.certificate, request.misfit.signature)
    return _item("misfit", "1 signature", request, request.ref)


def complaint_item(contract: Contract, request: pb.ComplainRequest) -> Item:
    """The name of a refusal and one sentence, signed."""
    _check_secure(contract, request.run_id)
    _require(len(request.sentence) <= SENTENCE_CHARACTERS, "a complaint longer than a sentence")
    _require(len(request.error) <= 64 and len(request.accused) <= 64, "a complaint with an undeclared name")
    _check_signed(request.certificate, request.signature)
    return _item("complaint", request.error, request, None, request.run_id, request.sentence)


def evidence_item(contract: Contract, request: pb.ComplainRequest, proof: SignedEvidence) -> Item:
    """What stays at the site of a complaint about the aggregator: both digests, the context, and the signature over
    them. Its digest is that of the certificate whose key signed."""
    held = proof.evidence
    parts = {
        "error": request.error,
        "context": held.context.hex(),
        "announced": held.announced.hex(),
        "found": held.found.hex(),
        "signature": proof.signature.hex(),
    }
    signer = hashlib.sha256(request.certificate).digest()
    return Item(EVIDENCE, request.error, 0, signer, contract.run_id, held.round, None, json.dumps(parts))


def respond_item(request: pb.RespondRequest) -> Item:
    """The signed answer to a proposal."""
    _require(len(request.spec_sha256) == 32, "a digest of an undeclared size")
    _require(len(request.signature) <= SIGNATURE_BYTES, "a signature of an undeclared size")
    _require(sum(map(len, request.reasons)) <= 10 * SENTENCE_CHARACTERS, "reasons longer than sentences")
    detail = "enrols" if request.accept else "refuses: " + "; ".join(request.reasons)
    return _item("answer", "1 signature", request, None, request.run_id, detail)


def subscribe_item(request: pb.SubscribeRequest) -> Item:
    """The first message of a connection: version, capabilities, number of rows, and the latest attempts."""
    _require(len(request.features_sha256) in (0, 32), "a digest of an undeclared size")
    # Of a run that has opened no round to this site there is no consensus to name, and attempts count from 1.
    sizes = {(one.ref.attempt > 0, len(one.consensus_sha256)) for one in request.seen}
    _require(sizes <= {(True, 32), (False, 0)}, "a digest of an undeclared size")
    _require(all(len(one.ticket) <= TICKET_BYTES for one in request.seen), "a ticket of an undeclared size")
    returned = (len(one.opened.inline_consensus) + len(one.memory) for one in request.seen)
    _require(sum(returned) <= MESSAGE_BYTES, "an announcement of an undeclared size")
    return _item("subscription", f"{request.rows} features", request, None)


def progress_item(contract: Contract, request: pb.ReportProgressRequest) -> Item:
    """A percentage."""
    _require(request.ref.run_id == contract.run_id, "a message for another run")
    _require(request.percent <= 100, "more than a percentage")
    return _item("progress", f"{request.percent} %", request, request.ref)


def refusal_item(request: pb.ExportRefusal) -> Item:
    """The sentence that says why the reconstruction stays here."""
    _require(len(request.reason) <= SENTENCE_CHARACTERS, "a reason longer than a sentence")
    return _item("export refusal", "1 sentence", request, None, request.run_id, request.reason)


def export_item(header: pb.ExportHeader) -> Item:
    """One file of the reconstruction."""
    _require(header.artifact in ARTIFACTS, "a file that is no part of a reconstruction")
    return Item("reconstruction", header.artifact, header.size, header.sha256, header.run_id)


def _item(
    kind: str, shape: str, message: object, ref: types.RoundRef | None, run_id: str = "", detail: str = ""
) -> Item:
    content: bytes = message.SerializeToString(deterministic=True)  # type: ignore[attr-defined]
    digest = hashlib.sha256(content).digest()
    if ref is None:
        return Item(kind, shape, len(content), digest, run_id, detail=detail)
    return Item(kind, shape, len(content), digest, ref.run_id, ref.round, ref.attempt, detail)


def _check_secure(contract: Contract, run_id: str) -> None:
    _require(run_id == contract.run_id, "a message for another run")
    _require(contract.masked, "key material in a plain run")


def _check_signed(certificate: bytes, signature: bytes) -> None:
    _require(0 < len(certificate) <= CERTIFICATE_BYTES, "a certificate of an undeclared size")
    _require(0 < len(signature) <= SIGNATURE_BYTES, "a signature of an undeclared size")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise EgressViolation(f"{otherwise} was about to leave this site; it was stopped", "report this as a defect")
