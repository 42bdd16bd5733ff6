"""The audit log as an operator verifies it: a real store's entries, whole and then tampered with in every way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.store import audit
from aggregator.store.audit import Signer
from aggregator.store.store import Store
from dcfpca.cli.run_results import verify_audit_log
from dcfpca.errors import BadMessage, DcfpcaError, Refused
from dcfpca.identity import Role
from dcfpca.pki.ca_directory import Authority, create_authority
from dcfpca.pki.credential_files import issue_credentials, load_credentials
from dcfpca.pki.keys import sign
from dcfpca.pki.trust import load_certificates
from dcfpca.v1.admin_pb2 import AuditEntry

NOW = datetime.now(UTC)


def _authority(path: Path) -> Authority:
    return create_authority(path, "acme", NOW - timedelta(days=200))


def _signer(authority: Authority, out: Path, role: Role = Role.AGGREGATOR, age: int = 0) -> Signer:
    made = NOW - timedelta(days=age)
    hosts = ["localhost"] if role is Role.AGGREGATOR else []
    files = issue_credentials(authority, role, "agg", out, now=made, hosts=hosts, days=30)
    own = load_credentials(files.ca, files.certificate, files.key, now=made)
    return Signer(lambda data: sign(own.private_key, data), own.certificate.public_bytes(Encoding.DER))


def _log(tmp_path: Path, *signers: Signer) -> list[AuditEntry]:
    store = Store(tmp_path / "store.db")
    for number, signer in enumerate(signers):
        about = {"actor": f"actor {number}", "action": "run_proposed", "run_id": "r", "detail": {"n": number}}
        audit.append(store.connection, signer, at_ms=1000 + number, **about)  # type: ignore[arg-type]
    entries = audit.entries(store.connection)
    store.close()
    return entries


def test_a_log_is_whole_across_renewals_and_after_its_first_certificate_has_expired(tmp_path: Path) -> None:
    authority = _authority(tmp_path / "ca")
    old, new = _signer(authority, tmp_path / "old", age=100), _signer(authority, tmp_path / "new")
    entries = _log(tmp_path, old, old, new, new)
    assert [bool(entry.certificate) for entry in entries] == [True, False, True, False]
    assert verify_audit_log(entries, load_certificates(tmp_path / "ca" / "ca.crt")) == 4


def _changed(field: str, value: object) -> Callable[[list[AuditEntry]], None]:
    return lambda entries: setattr(entries[1], field, value)


@pytest.mark.parametrize(
    "tamper",
    [
        _changed("at_ms", 5),
        _changed("actor", "somebody else"),
        _changed("action", "nothing_happened"),
        _changed("run_id", "other"),
        _changed("detail", "{}"),
        _changed("hash", bytes(32)),
        _changed("signature", b"\x30\x00"),
        _changed("previous", bytes(32)),
        lambda entries: entries.pop(1),
        lambda entries: entries.reverse(),
        lambda entries: entries.insert(1, entries[0]),
    ],
)
def test_no_entry_can_be_changed_dropped_moved_or_repeated(
    tmp_path: Path, tamper: Callable[[list[AuditEntry]], None]
) -> None:
    signer = _signer(_authority(tmp_path / "ca"), tmp_path / "agg")
    entries = _log(tmp_path, signer, signer, signer)
    tamper(entries)
    with pytest.raises(BadMessage):
        verify_audit_log(entries, load_certificates(tmp_path / "ca" / "ca.crt"))


@pytest.mark.parametrize("case", ["another consortium", "another role"])
def test_only_an_aggregator_of_this_consortium_can_have_written_it(tmp_path: Path, case: str) -> None:
    authority = _authority(tmp_path / "ca")
    if case == "another role":
        signer = _signer(authority, tmp_path / "x", Role.PARTICIPANT)
    else:
        signer = _signer(_authority(tmp_path / "other"), tmp_path / "x")
    with pytest.raises(Refused, match="not signed by an aggregator of this CA") as told:
        verify_audit_log(_log(tmp_path, signer), load_certificates(tmp_path / "ca" / "ca.crt"))
    assert isinstance(told.value, DcfpcaError)
    assert told.value.hint
