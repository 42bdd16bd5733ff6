"""What may leave: declared messages of the exact size. Anything else raises before it is recorded or sent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from dcfpca.rpca.round_limits import CLOSING_ROUNDS
from dcfpca.run_references import AttemptRef
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.round_messages import ref_to_wire
from participant import contract
from participant.contract import Contract, EgressViolation

REF = AttemptRef("run-1", 1, 1)
SEAL = (7, bytes(32))


def agreed(**changes: Any) -> Contract:
    return Contract("run-1", "a", Terms.of(RunSpec.model_validate({"rows": 6, "rank": 2} | changes)))


def payload_of(deal: Contract, round: int = 1) -> bytes:
    return bytes(8 * deal.terms.method.stage("open" if round == 0 else "fit").up.size)


def test_an_update_of_the_declared_shape_may_leave() -> None:
    deal = agreed()
    payload = payload_of(deal)
    item, header = contract.update_item(deal, REF, (payload, *SEAL), "fit")
    assert item.kind == "masked update"
    assert item.size == len(payload)
    assert item.sha256 == header.tensor.sha256 == hashlib.sha256(payload).digest()
    layout = deal.terms.method.stage("fit").up
    announced = (header.tensor.rows, header.tensor.columns, header.tensor.scalars)
    assert announced == (layout.rows, layout.columns, layout.scalars)


def test_a_plain_update_is_called_one() -> None:
    deal = agreed(aggregation="plain")
    assert contract.update_item(deal, REF, (payload_of(deal), 0, b""), "fit")[0].kind == "plain update"


@pytest.mark.parametrize("change", [lambda p: p + b"\0", lambda p: p[:-1], lambda p: b"", lambda p: p * 2])
def test_an_update_with_more_or_fewer_bytes_stays(change: Callable[[bytes], bytes]) -> None:
    deal = agreed()
    with pytest.raises(EgressViolation, match="bytes"):
        contract.update_item(deal, REF, (change(payload_of(deal)), *SEAL), "fit")


def test_half_the_precision_is_half_the_bytes_and_nothing_else_passes() -> None:
    deal = agreed(precision=32)
    contract.update_item(deal, REF, (payload_of(deal)[::2], *SEAL), "fit")
    with pytest.raises(EgressViolation, match="bytes"):
        contract.update_item(deal, REF, (payload_of(deal), *SEAL), "fit")


@pytest.mark.parametrize(
    "ref",
    [
        AttemptRef("run-2", 1, 1),
        AttemptRef("run-1", 101, 1),
        AttemptRef("run-1", 0, 1),
    ],
)
def test_an_update_of_another_run_or_round_stays(ref: AttemptRef) -> None:
    deal = agreed()
    with pytest.raises(EgressViolation):
        contract.update_item(deal, ref, (payload_of(deal), *SEAL), "fit")


@pytest.mark.parametrize("stage", ["refine", "validate", "null"])
def test_an_update_of_a_closing_round_leaves_only_within_the_closing_rounds_of_the_spec(stage: str) -> None:
    deal = agreed()
    payload = bytes(8 * deal.terms.method.stage(stage).up.size)
    for round, allowed in ((101, True), (100 + CLOSING_ROUNDS, True), (101 + CLOSING_ROUNDS, False)):
        ref = AttemptRef("run-1", round, 1)
        if allowed:
            assert contract.update_item(deal, ref, (payload, *SEAL), stage)[0].size == len(payload)
            continue
        with pytest.raises(EgressViolation, match="round"):
            contract.update_item(deal, ref, (payload, *SEAL), stage)
    without = agreed(closing_rounds=False)
    with pytest.raises(EgressViolation, match="stage"):
        contract.update_item(without, REF, (bytes(8), *SEAL), stage)


def test_small_messages_are_small() -> None:
    with pytest.raises(EgressViolation):
        contract.refusal_item(pb.ExportRefusal(run_id="run-1", export_id="e", reason="x" * 5000))
    with pytest.raises(EgressViolation):
        contract.respond_item(pb.RespondRequest(run_id="run-1", spec_sha256=bytes(32), reasons=["x" * 99999]))


def test_a_site_names_the_consensus_of_its_latest_attempt_and_none_of_a_run_without_one() -> None:
    attempt, none_yet = types.RoundRef(run_id="run-1", attempt=1), types.RoundRef(run_id="run-2")
    named, nothing = pb.Seen(ref=attempt, consensus_sha256=bytes(32)), pb.Seen(ref=none_yet)
    assert contract.subscribe_item(pb.SubscribeRequest(rows=6, seen=[named, nothing])).shape == "6 features"
    wrong = pb.Seen(ref=attempt), pb.Seen(ref=none_yet, consensus_sha256=bytes(32)), pb.Seen(consensus_sha256=bytes(9))
    for one in wrong:
        with pytest.raises(EgressViolation, match="digest"):
            contract.subscribe_item(pb.SubscribeRequest(rows=6, seen=[named, one]))


def test_only_the_files_of_a_reconstruction_are_exported() -> None:
    assert contract.export_item(pb.ExportHeader(run_id="run-1", artifact="L.npy", size=3)).shape == "L.npy"
    for name in ("U.npy", "V.npy", "manifest.json", "../data.npy"):
        with pytest.raises(EgressViolation):
            contract.export_item(pb.ExportHeader(run_id="run-1", artifact=name))


def test_a_masked_update_carries_a_tag_of_the_field_and_its_context() -> None:
    deal = agreed()
    _, header = contract.update_item(deal, REF, (payload_of(deal), *(7, bytes(32))), "fit")
    assert (header.tag, header.context) == (7, bytes(32))
    for seal in ((0, b""), (7, bytes(31)), (2**61 - 1, bytes(32))):
        with pytest.raises(EgressViolation):
            contract.update_item(deal, REF, (payload_of(deal), *seal), "fit")
    with pytest.raises(EgressViolation):
        contract.update_item(agreed(aggregation="plain"), REF, (payload_of(deal), *(7, bytes(32))), "fit")


def run_key(**changes: Any) -> pb.AdvertiseRunKeyRequest:
    fields: dict[str, Any] = {"participant": "a", "certificate": bytes(500), "signature": bytes(70)}
    sizes = {"key": bytes(32), "kem_key": bytes(1184), "commitment": bytes(32), "binding": bytes(32)}
    return pb.AdvertiseRunKeyRequest(run_id="run-1", key=pb.RunKey(**(fields | sizes | changes)))


def test_the_key_of_a_run_has_exact_sizes_and_leaves_in_a_secure_run_only() -> None:
    assert contract.run_key_item(agreed(), run_key()).kind == "run key"
    for changes in (
        {"key": bytes(33)},
        {"kem_key": b""},
        {"participant": "b"},
        {"signature": bytes(500)},
        {"certificate": bytes(99999)},
    ):
        with pytest.raises(EgressViolation):
            contract.run_key_item(agreed(), run_key(**changes))
    with pytest.raises(EgressViolation, match="key material in a plain run"):
        contract.run_key_item(agreed(aggregation="plain"), run_key())


def group_shares(*recipients: str, sender: str = "a", size: int = 1168) -> pb.ShareGroupSecretRequest:
    made = [
        pb.SealedGroupShare(sender=sender, recipient=name, ciphertext=bytes(size), signature=bytes(70))
        for name in recipients
    ]
    return pb.ShareGroupSecretRequest(run_id="run-1", shares=made)


def test_shares_of_the_group_secret_are_one_per_member_of_one_size() -> None:
    deal = agreed()
    assert contract.group_shares_item(deal, group_shares("b", "c")).shape == "2 shares"
    for wrong in (
        group_shares("b", "b"),
        group_shares("a"),
        group_shares("b", sender="c"),
        group_shares("b", size=1169),
    ):
        with pytest.raises(EgressViolation):
            contract.group_shares_item(deal, wrong)


def test_misfits_and_complaints_are_small_and_signed() -> None:
    deal = agreed()
    signed: dict[str, Any] = {"certificate": bytes(500), "signature": bytes(70)}
    misfit = pb.ReportMisfitRequest(
        ref=ref_to_wire(REF), misfit=pb.Misfit(participant="a", context=bytes(32), **signed)
    )
    assert contract.misfit_item(deal, misfit).shape == "1 signature"
    complaint = pb.ComplainRequest(run_id="run-1", error="WrongSum", sentence="it is wrong", **signed)
    item = contract.complaint_item(deal, complaint)
    assert (item.kind, item.shape, item.detail) == ("complaint", "WrongSum", "it is wrong")
    complaint.sentence = "x" * 5000
    misfit.misfit.participant = "b"
    with pytest.raises(EgressViolation):
        contract.complaint_item(deal, complaint)
    with pytest.raises(EgressViolation):
        contract.misfit_item(deal, misfit)
