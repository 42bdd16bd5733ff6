"""Output of `dcfpca certs`: results as lines, as a table or as one JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from cryptography import x509

from dcfpca.identity import fingerprint
from dcfpca.pki.authority import consortium_of
from dcfpca.pki.ca_directory import CertificateRecord, Index
from dcfpca.pki.trust import whole_days
from dcfpca.text.console import Json, print_json, result, say, show, table

# Enough digits of a serial to tell certificates apart on one screen, and for `revoke` to accept; --json has them all.
_SHORT = 12


def report(as_json: bool, document: Mapping[str, Json], lines: Iterable[str]) -> None:
    """Print the result, as one JSON document or as lines for people."""
    if as_json:
        print_json(document)
    else:
        result("\n".join(lines))


def certificate_document(record: CertificateRecord, now: datetime) -> dict[str, Json]:
    """The JSON document of one certificate."""
    identity = record.speaks_for()
    return {
        "identity": record.identity,
        "role": str(identity.role),
        "name": identity.name,
        "serial": record.serial,
        "fingerprint": record.fingerprint,
        "key_fingerprint": record.key,
        "not_before": record.not_before,
        "not_after": record.not_after,
        "days_left": _days(record, now),
        "revoked": bool(record.revoked),
        "revoked_at": record.revoked or None,
        "reason": record.reason or None,
    }


def print_list(as_json: bool, ca: x509.Certificate, index: Index, now: datetime) -> None:
    """Print the CA and every certificate it has signed."""
    consortium, left = consortium_of(ca), whole_days(ca.not_valid_after_utc, now)
    if as_json:
        authority: dict[str, Json] = {"fingerprint": fingerprint(ca), "days_left": left}
        lines = [certificate_document(record, now) for record in index.records]
        print_json({"consortium": consortium, "ca": authority, "certificates": lines})
        return
    rows = table("name", "role", "#days left", "serial", "state", "key fingerprint, as read out by telephone")
    for record in index.records:
        rows.add_row(*_row(record, now))
    say(f"{consortium}: the CA has {left} days left")
    show(rows)


def _row(record: CertificateRecord, now: datetime) -> tuple[str, ...]:
    identity = record.speaks_for()
    days = str(_days(record, now))
    return identity.name, identity.role, days, record.serial[:_SHORT], _state(record, now), record.key


def _state(record: CertificateRecord, now: datetime) -> str:
    if record.revoked:
        return "revoked"
    return "valid" if record.is_live(now) else "expired"


def _days(record: CertificateRecord, now: datetime) -> int:
    return whole_days(datetime.fromisoformat(record.not_after), now)
