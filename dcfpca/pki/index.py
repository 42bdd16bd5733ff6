"""The authority's record of what it has signed: `index.json`, read and written as one document."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from cryptography import x509

from dcfpca.errors import BadInput
from dcfpca.identity import Identity, fingerprint, identity_of
from dcfpca.pki.key_files import write_file
from dcfpca.pki.keys import check_public_key, key_fingerprint
from dcfpca.pki.trust import serial_of

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class CertificateRecord:
    """One certificate. `key` is the fingerprint of its public key; `revoked` is empty or an ISO time."""

    serial: str
    fingerprint: str
    identity: str
    key: str
    not_before: str
    not_after: str
    revoked: str = ""
    reason: str = ""

    def speaks_for(self) -> Identity:
        """The identity the certificate carries."""
        return Identity.parse(self.identity)

    def is_live(self, now: datetime) -> bool:
        """True if the certificate is neither revoked nor expired."""
        return not self.revoked and now <= datetime.fromisoformat(self.not_after)


@dataclass(frozen=True, slots=True)
class Index:
    """All certificates in the order they were signed, and the number of the latest revocation list."""

    records: tuple[CertificateRecord, ...] = ()
    crl_number: int = 0

    def of(self, identity: Identity) -> tuple[CertificateRecord, ...]:
        """The certificates of one identity."""
        return tuple(record for record in self.records if record.identity == str(identity))

    def with_record(self, record: CertificateRecord) -> Index:
        """The index after one more signature."""
        return replace(self, records=(*self.records, record))

    def with_revoked(self, chosen: tuple[CertificateRecord, ...], when: datetime, reason: str) -> Index:
        """The index after a revocation, which calls for the next revocation list."""
        stamp = when.isoformat(timespec="seconds")
        records = tuple(replace(r, revoked=stamp, reason=reason) if r in chosen else r for r in self.records)
        return Index(records, self.crl_number + 1)


def record_of(certificate: x509.Certificate) -> CertificateRecord:
    """The line of the index for a certificate just signed."""
    return CertificateRecord(
        serial=serial_of(certificate),
        fingerprint=fingerprint(certificate),
        identity=str(identity_of(certificate)),
        key=key_fingerprint(check_public_key(certificate.public_key(), "the certificate")),
        not_before=certificate.not_valid_before_utc.isoformat(),
        not_after=certificate.not_valid_after_utc.isoformat(),
    )


def read_index(path: Path) -> Index:
    """Read the index; a missing or damaged one is BadInput."""
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != _FORMAT:
            raise ValueError("format")
        return Index(tuple(CertificateRecord(**line) for line in document["certificates"]), document["crl_number"])
    except FileNotFoundError:
        hint = f"make a CA with `dcfpca certs init --dir {path.parent} --consortium NAME`"
        raise BadInput(f"there is no certificate authority in {path.parent}", hint) from None
    except OSError as error:
        raise BadInput(f"the index {path} cannot be read: {error.strerror}", "check who may read it") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadInput(f"the index {path} is damaged", "restore it from a backup of the CA directory") from None


def write_index(path: Path, index: Index) -> None:
    """Write the index atomically."""
    lines = [asdict(record) for record in index.records]
    document = {"format": _FORMAT, "crl_number": index.crl_number, "certificates": lines}
    write_file(path, json.dumps(document, indent=1).encode() + b"\n")
