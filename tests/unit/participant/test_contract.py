"""What may leave: declared messages of the exact size. Anything else raises before it is recorded or sent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from dcfpca.rpca.method import Stage
from dcfpca.rpca.refinement.limits import CLOSING_ROUNDS
from dcfpca.secagg.dropout_recovery.shamir import SHARE_BYTES
from dcfpca.spec import RunSpec
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from participant import contract
from participant.contract import SEALED_BYTES, Contract, EgressViolation

REF = types.RoundRef(run_id="run-1", round=1, attempt=1)


def agreed(**changes: Any) -> Contract:
    return Contract("run-1", "a", RunSpec.model_validate({"rows": 6, "rank": 2, "dropouts": "go-on"} | changes))


def payload_of(deal: Contract, round: int = 1) -> bytes:
    return bytes(8 * deal.layout(round).size)


def test_an_update_of_the_declared_shape_may_leave() -> None:
    deal = agreed()
    payload = payload_of(deal)
    item, header = contract.update_item(deal, REF, payload)
    assert item.kind == "masked update"
    assert item.size == len(payload)
    assert item.sha256 == header.tensor.sha256 == hashlib.sha256(payload).digest()
    layout = deal.layout(1)
    told = (header.tensor.rows, header.tensor.columns, header.tensor.scalars)
    assert told == (layout.rows, layout.columns, len(layout.scalars))


def test_a_plain_update_is_called_one() -> None:
    deal = agreed(aggregation="plain")
    assert contract.update_item(deal, REF, payload_of(deal))[0].kind == "plain update"


@pytest.mark.parametrize("change", [lambda p: p + b"\0", lambda p: p[:-1], lambda p: b"", lambda p: p * 2])
def test_an_update_with_more_or_fewer_bytes_stays(change: Callable[[bytes], bytes]) -> None:
    deal = agreed()
    with pytest.raises(EgressViolation, match="bytes"):
        contract.update_item(deal, REF, change(payload_of(deal)))


def test_half_the_precision_is_half_the_bytes_and_nothing_else_passes() -> None:
    deal = agreed(precision=32)
    contract.update_item(deal, REF, payload_of(deal)[::2])
    with pytest.raises(EgressViolation):
        contract.update_item(deal, REF, payload_of(deal))


@pytest.mark.parametrize(
    "ref",
    [
        types.RoundRef(run_id="run-2", round=1, attempt=1),
        types.RoundRef(run_id="run-1", round=101, attempt=1),
        types.RoundRef(run_id="run-1", round=0, attempt=1),
    ],
)
def test_an_update_of_another_run_or_round_stays(ref: types.RoundRef) -> None:
    deal = agreed()
    with pytest.raises(EgressViolation):
        contract.update_item(deal, ref, payload_of(deal))


@pytest.mark.parametrize("stage", [Stage.REFINE, Stage.VALIDATE, Stage.NULL])
def test_an_update_of_a_closing_round_leaves_only_within_the_closing_rounds_of_the_spec(stage: Stage) -> None:
    deal = agreed()
    payload = bytes(8 * deal.layout(101, stage).size)
    for round, allowed in ((101, True), (100 + CLOSING_ROUNDS, True), (101 + CLOSING_ROUNDS, False)):
        ref = types.RoundRef(run_id="run-1", round=round, attempt=1)
        if allowed:
            assert contract.update_item(deal, ref, payload, stage=stage)[0].size == len(payload)
            continue
        with pytest.raises(EgressViolation, match="round"):
            contract.update_item(deal, ref, payload, stage=stage)
    without = agreed(closing_rounds=False)
    with pytest.raises(EgressViolation, match="stage"):
        contract.update_item(without, REF, bytes(8 * without.layout(1, stage).size), stage=stage)


def keys(**changes: Any) -> pb.AdvertiseKeysRequest:
    fields: dict[str, Any] = {
        "participant": "a",
        "sealing_key": bytes(32),
        "masking_key": bytes(32),
        "commitment": bytes(32),
        "binding": bytes(32),
        "signature": bytes(70),
    }
    return pb.AdvertiseKeysRequest(ref=REF, keys=pb.AdvertisedKeys(**(fields | changes)))


def test_keys_have_exact_sizes_and_the_sites_own_name() -> None:
    assert contract.keys_item(agreed(), keys()).kind == "public keys"
    for changes in ({"sealing_key": bytes(33)}, {"participant": "b"}, {"signature": bytes(500)}, {"binding": b""}):
        with pytest.raises(EgressViolation):
            contract.keys_item(agreed(), keys(**changes))


def test_key_material_stays_in_a_plain_run() -> None:
    with pytest.raises(EgressViolation, match="plain run"):
        contract.keys_item(agreed(aggregation="plain"), keys())


def shares(*recipients: str, sender: str = "a", size: int = SEALED_BYTES) -> pb.ShareKeysRequest:
    sealed = [pb.SealedShares(sender=sender, recipient=name, ciphertext=bytes(size)) for name in recipients]
    return pb.ShareKeysRequest(ref=REF, shares=sealed)


def test_sealed_shares_are_one_per_peer_of_one_size() -> None:
    assert contract.shares_item(agreed(), shares("b", "c")).shape == "2 pairs"
    for wrong in (shares("b", "b"), shares("a"), shares("b", sender="c"), shares("b", size=SEALED_BYTES + 1)):
        with pytest.raises(EgressViolation):
            contract.shares_item(agreed(), wrong)


def reveal(survivors: list[str], dropouts: list[str], size: int = SHARE_BYTES) -> pb.UnmaskRequest:
    seeds = [pb.RevealedShare(owner=name, share=bytes(size)) for name in survivors]
    lost = [pb.RevealedShare(owner=name, share=bytes(size)) for name in dropouts]
    return pb.UnmaskRequest(ref=REF, survivor_shares=seeds, dropout_shares=lost)


def test_both_kinds_of_share_of_one_peer_never_leave_together() -> None:
    assert contract.reveal_item(agreed(), reveal(["a", "b"], ["c"])).kind == "revealed shares"
    for wrong in (reveal(["a", "b"], ["b"]), reveal(["a", "a"], []), reveal(["a"], [], size=40)):
        with pytest.raises(EgressViolation):
            contract.reveal_item(agreed(), wrong)


def test_small_messages_are_small() -> None:
    contract.bound_item(agreed(), pb.StateBoundRequest(ref=REF, exponent=-12))
    contract.attestation_item(agreed(), pb.AttestSurvivorsRequest(ref=REF, signature=bytes(70)))
    with pytest.raises(EgressViolation):
        contract.bound_item(agreed(), pb.StateBoundRequest(ref=REF, exponent=5000))
    with pytest.raises(EgressViolation):
        contract.attestation_item(agreed(), pb.AttestSurvivorsRequest(ref=REF, signature=bytes(4000)))
    with pytest.raises(EgressViolation):
        contract.refusal_item(pb.ExportRefusal(run_id="run-1", export_id="e", reason="x" * 5000))
    with pytest.raises(EgressViolation):
        contract.respond_item(pb.RespondRequest(run_id="run-1", spec_sha256=bytes(32), reasons=["x" * 99999]))


def test_only_the_files_of_a_reconstruction_are_exported() -> None:
    assert contract.export_item(pb.ExportHeader(run_id="run-1", artifact="L.npy", size=3)).shape == "L.npy"
    for name in ("U.npy", "V.npy", "manifest.json", "../data.npy"):
        with pytest.raises(EgressViolation):
            contract.export_item(pb.ExportHeader(run_id="run-1", artifact=name))


def test_an_update_of_a_fixed_cohort_carries_a_tag_of_the_field_and_its_context() -> None:
    deal = agreed(dropouts="wait")
    _, header = contract.update_item(deal, REF, payload_of(deal), seal=(7, bytes(32)))
    assert (header.tag, header.context) == (7, bytes(32))
    for seal in ((0, b""), (7, bytes(31)), (2**61 - 1, bytes(32))):
        with pytest.raises(EgressViolation):
            contract.update_item(deal, REF, payload_of(deal), seal=seal)
    with pytest.raises(EgressViolation):
        contract.update_item(agreed(), REF, payload_of(deal), seal=(7, bytes(32)))


def run_key(**changes: Any) -> pb.AdvertiseRunKeyRequest:
    fields: dict[str, Any] = {"participant": "a", "certificate": bytes(500), "signature": bytes(70)}
    sizes = {"key": bytes(32), "commitment": bytes(32), "binding": bytes(32)}
    return pb.AdvertiseRunKeyRequest(run_id="run-1", key=pb.RunKey(**(fields | sizes | changes)))


def test_the_key_of_a_run_has_exact_sizes_and_leaves_in_a_fixed_cohort_only() -> None:
    assert contract.run_key_item(agreed(dropouts="wait"), run_key()).kind == "run key"
    for changes in ({"key": bytes(33)}, {"participant": "b"}, {"signature": bytes(500)}, {"certificate": bytes(99999)}):
        with pytest.raises(EgressViolation):
            contract.run_key_item(agreed(dropouts="wait"), run_key(**changes))
    for other in (agreed(), agreed(aggregation="plain", dropouts="wait")):
        with pytest.raises(EgressViolation, match="fixed cohort"):
            contract.run_key_item(other, run_key())


def group_shares(*recipients: str, sender: str = "a", size: int = 48) -> pb.ShareGroupSecretRequest:
    made = [
        pb.SealedGroupShare(sender=sender, recipient=name, ciphertext=bytes(size), signature=bytes(70))
        for name in recipients
    ]
    return pb.ShareGroupSecretRequest(run_id="run-1", shares=made)


def test_shares_of_the_group_secret_are_one_per_member_of_one_size() -> None:
    deal = agreed(dropouts="wait")
    assert contract.group_shares_item(deal, group_shares("b", "c")).shape == "2 shares"
    for wrong in (group_shares("b", "b"), group_shares("a"), group_shares("b", sender="c"), group_shares("b", size=49)):
        with pytest.raises(EgressViolation):
            contract.group_shares_item(deal, wrong)


def test_misfits_and_complaints_are_small_and_signed() -> None:
    deal = agreed(dropouts="wait")
    signed: dict[str, Any] = {"certificate": bytes(500), "signature": bytes(70)}
    misfit = pb.ReportMisfitRequest(ref=REF, misfit=pb.Misfit(participant="a", context=bytes(32), **signed))
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
