"""The directory that holds a consortium's certificate authority.

    DIR/ca.crt              the CA's certificate: everyone gets a copy
    DIR/ca.key              the CA's private key, mode 0600: never leaves
    DIR/crl.pem             the signed revocation list: the aggregator gets each new one
    DIR/index.json          what was signed and what was revoked
    DIR/issued/SERIAL.crt   every certificate ever signed

Each change takes the lock, and writes the index last but for the revocation list made from it.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from dcfpca.errors import BadInput, Refused
from dcfpca.pki.authority import (
    CA_DAYS,
    ROLE_DAYS,
    Revocation,
    consortium_of,
    new_authority,
    new_revocation_list,
    sign_certificate,
)
from dcfpca.pki.index import CertificateRecord, Index, read_index, record_of, write_index
from dcfpca.pki.keys import load_private_key, make_directory, new_private_key, private_pem, write_file, write_new_key
from dcfpca.pki.requests import CertificateRequest
from dcfpca.pki.trust import load_certificate


@dataclass(frozen=True, slots=True)
class Authority:
    """An open CA directory."""

    directory: Path
    certificate: x509.Certificate = field(repr=False)
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def consortium(self) -> str:
        """The consortium this authority signs for."""
        return consortium_of(self.certificate)

    @property
    def ca_path(self) -> Path:
        """The path of the CA's certificate, which everybody gets a copy of."""
        return self.directory / "ca.crt"

    @property
    def crl_path(self) -> Path:
        """The path of the revocation list that the aggregator reads."""
        return self.directory / "crl.pem"


def create_authority(directory: Path, consortium: str, now: datetime, days: int = CA_DAYS) -> Authority:
    """Make a CA in a directory that has none."""
    key = new_private_key()
    certificate = new_authority(consortium, key, now, days)
    if (directory / "ca.key").exists() or (directory / "ca.crt").exists():
        hint = "to change the CA, make the next one in another directory and hand out both ca.crt in one file"
        raise Refused(f"there is a certificate authority in {directory} already", hint)
    make_directory(directory)
    make_directory(directory / "issued")
    authority = Authority(directory, certificate, key)
    with _locked(directory):
        write_new_key(directory / "ca.key", private_pem(key))
        write_file(authority.ca_path, certificate.public_bytes(Encoding.PEM))
        write_index(directory / "index.json", Index(crl_number=1))
        _publish_revocations(authority, now)
    return authority


def open_authority(directory: Path) -> Authority:
    """Open the CA in a directory."""
    if not (directory / "ca.crt").exists():
        hint = f"make one with `dcfpca certs init --dir {directory} --consortium NAME`"
        raise BadInput(f"there is no certificate authority in {directory}", hint)
    return Authority(directory, load_certificate(directory / "ca.crt"), load_private_key(directory / "ca.key"))


def issue_certificate(
    authority: Authority, wanted: CertificateRequest, now: datetime, days: int = ROLE_DAYS
) -> x509.Certificate:
    """Sign the requested certificate and record it."""
    certificate = sign_certificate(wanted, authority.certificate, authority.key, now, days)
    record = record_of(certificate)
    with _locked(authority.directory):
        write_file(issued_path(authority.directory, record), certificate.public_bytes(Encoding.PEM))
        index = read_index(authority.directory / "index.json")
        write_index(authority.directory / "index.json", index.with_record(record))
    return certificate


def revoke_certificates(
    authority: Authority, chosen: tuple[CertificateRecord, ...], now: datetime, reason: x509.ReasonFlags
) -> None:
    """Record the revocation, then publish a list that contains it."""
    with _locked(authority.directory):
        index = read_index(authority.directory / "index.json")
        write_index(authority.directory / "index.json", index.with_revoked(chosen, now, reason.value))
        _publish_revocations(authority, now)


def renew_revocation_list(authority: Authority, now: datetime, days: int | None) -> None:
    """Publish the same list under the next number, valid for `days` days, or as long as the CA."""
    if days is not None and days < 1:
        raise BadInput(f"a revocation list lasts 1 day or more, not {days}", "leave --days out for as long as the CA")
    with _locked(authority.directory):
        index = read_index(authority.directory / "index.json")
        write_index(authority.directory / "index.json", replace(index, crl_number=index.crl_number + 1))
        _publish_revocations(authority, now, days)


def list_records(directory: Path) -> Index:
    """The index of issued certificates, read without the CA's key."""
    return read_index(directory / "index.json")


def issued_path(directory: Path, record: CertificateRecord) -> Path:
    """The path of a certificate's public copy."""
    return directory / "issued" / f"{record.serial}.crt"


def _publish_revocations(authority: Authority, now: datetime, days: int | None = None) -> None:
    index = read_index(authority.directory / "index.json")
    lines = [_revocation(record) for record in index.records if record.revoked]
    crl = new_revocation_list(lines, authority.certificate, authority.key, index.crl_number, now, days)
    write_file(authority.crl_path, crl.public_bytes(Encoding.PEM))


def _revocation(record: CertificateRecord) -> Revocation:
    when = datetime.fromisoformat(record.revoked)
    return Revocation(int(record.serial, 16), when, x509.ReasonFlags(record.reason))


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock the directory, so that one process at a time changes it."""
    with (directory / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
