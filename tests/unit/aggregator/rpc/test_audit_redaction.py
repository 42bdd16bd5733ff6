"""A participant reads its own lines of the audit log and what concerns it; the chain can be verified all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggregator.store import audit
from aggregator.store.audit import Signer, shown_to
from aggregator.store.store import Store
from dcfpca.errors import BadMessage
from dcfpca.identity import Identity, Role
from dcfpca.v1.admin_pb2 import AuditEntry
from dcfpca.wire.audit_chain import all_shown, is_withheld, verify_log

ANN, OPERATOR = Identity("acme", Role.PARTICIPANT, "ann"), Identity("acme", Role.OPERATOR, "op")
URI = "spiffe://acme/"
LINES: list[tuple[bool, str, str, str, dict[str, object]]] = [
    (True, "aggregator/agg", "aggregator_started", "", {"version": "1"}),
    (True, "operator/op", "run_proposed", "ours", {"spec_sha256": "00"}),
    (False, "operator/op", "run_proposed", "theirs", {"spec_sha256": "00"}),
    (True, "participant/ann", "participant_refused", "ours", {"reasons": ["too few columns here"]}),
    (False, "participant/bob", "participant_refused", "ours", {"reasons": ["too few columns here"]}),
    (False, "participant/bob", "participant_enrolled", "ours", {"reasons": []}),
    (True, "operator/ann", "run_aborted", "ours", {"reason": "enough"}),
    (True, "operator/op", "reconstruction_fetched", "ours", {"participant": "ann", "artifact": "L.npy"}),
    (False, "operator/op", "reconstruction_fetched", "ours", {"participant": "bob", "artifact": "L.npy"}),
    (True, "operator/op", "participant_revoked", "", {"name": "ann", "reason": "left"}),
    (False, "operator/op", "participant_revoked", "", {"name": "bob", "reason": "left"}),
]


@pytest.fixture
def log(tmp_path: Path) -> list[AuditEntry]:
    store, signer = Store(tmp_path / "store.db"), Signer(lambda data: b"signed " + data, b"certificate")
    for _, actor, action, run_id, detail in LINES:
        audit.append(store.connection, signer, at_ms=5, actor=URI + actor, action=action, run_id=run_id, detail=detail)
    return audit.entries(store.connection)


def read_by(reader: Identity, log: list[AuditEntry]) -> list[AuditEntry]:
    return [shown_to(reader, entry, lambda run_id: run_id == "ours") for entry in log]


def signed(certificate: bytes, signature: bytes, data: bytes) -> bool:
    return signature == b"signed " + data


def test_a_participant_reads_its_own_lines_and_what_concerns_it(log: list[AuditEntry]) -> None:
    shown = read_by(ANN, log)
    assert [not is_withheld(entry) for entry in shown] == [line[0] for line in LINES]
    assert not any(word in str(entry) for entry in shown for word in ("bob", "theirs"))


def test_an_operator_reads_everything(log: list[AuditEntry]) -> None:
    assert list(all_shown(read_by(OPERATOR, log))) == log


def test_the_chain_holds_over_lines_that_are_withheld(log: list[AuditEntry]) -> None:
    assert verify_log(read_by(ANN, log), signed) == len(LINES)


@pytest.mark.parametrize("place", [2, 4, 5])
def test_a_withheld_line_cannot_be_left_out_changed_or_half_shown(log: list[AuditEntry], place: int) -> None:
    shown = read_by(ANN, log)
    with pytest.raises(BadMessage):
        verify_log(shown[:place] + shown[place + 1 :], signed)
    for field, value in (("hash", bytes(32)), ("previous", bytes(32)), ("signature", b"x"), ("detail", "{}")):
        changed = [AuditEntry.FromString(entry.SerializeToString()) for entry in shown]
        setattr(changed[place], field, value)
        with pytest.raises(BadMessage):
            verify_log(changed, signed)


def test_nothing_is_withheld_from_an_operator_unnoticed(log: list[AuditEntry]) -> None:
    with pytest.raises(BadMessage, match="withholds entry 3"):
        list(all_shown(read_by(ANN, log)))
