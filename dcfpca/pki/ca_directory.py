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
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from dcfpca.errors import BadInput, Refused
from dcfpca.identity import Identity, fingerprint, identity_of, parse_role
from dcfpca.pki.authority import (
    CA_DAYS,
    ROLE_DAYS,
    CertificateRequest,
    consortium_of,
    new_authority,
    new_revocation_list,
    sign_certificate,
)
from dcfpca.pki.keys import (
    check_public_key,
    key_fingerprint,
    load_private_key,
    make_directory,
    new_private_key,
    private_pem,
    write_file,
    write_new_key,
)
from dcfpca.pki.trust import load_certificate, serial_of

INDEX = "index.json"
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


def list_records(directory: Path) -> Index:
    """The index of issued certificates, read without the CA's key; a missing or damaged one is BadInput."""
    path = directory / INDEX
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != _FORMAT:
            raise ValueError("format")
        return Index(tuple(CertificateRecord(**line) for line in document["certificates"]), document["crl_number"])
    except FileNotFoundError:
        hint = f"make a CA with `dcfpca certs init --dir {directory} --consortium NAME`"
        raise BadInput(f"there is no certificate authority in {directory}", hint) from None
    except OSError as error:
        raise BadInput(f"the index {path} cannot be read: {error.strerror}", "check who may read it") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadInput(f"the index {path} is damaged", "restore it from a backup of the CA directory") from None


def _write_index(directory: Path, index: Index) -> Index:
    """Write the index atomically, and return it."""
    lines = [asdict(record) for record in index.records]
    document = {"format": _FORMAT, "crl_number": index.crl_number, "certificates": lines}
    write_file(directory / INDEX, json.dumps(document, indent=1).encode() + b"\n")
    return index


_SHORTEST_PREFIX = 8


def choose_identity(index: Index, words: Sequence[str]) -> Identity:
    """The one identity meant by `NAME` or `ROLE NAME`."""
    found = _identities(index, words)
    if not found:
        hint = "`dcfpca certs list` shows the names there are"
        raise BadInput(f"no certificate has been issued to {' '.join(words)!r}", hint)
    if len(found) > 1:
        roles = ", ".join(sorted(str(identity.role) for identity in found))
        raise BadInput(
            f"{words[0]!r} has more than one role: {roles}", f"say which, as in `{roles.split(',')[0]} {words[0]}`"
        )
    return found.pop()


def choose_records(index: Index, words: Sequence[str], now: datetime) -> tuple[CertificateRecord, ...]:
    """The certificates to revoke: those of a name that can still be used, or the one with a serial or fingerprint."""
    if len(words) == 1 and not _identities(index, words):
        return (_by_number(index, words[0]),)
    identity = choose_identity(index, words)
    live = tuple(record for record in index.of(identity) if record.is_live(now))
    if not live:
        raise BadInput(f"{identity} has no certificate that can still be used", "there is nothing to revoke")
    return live


def _identities(index: Index, words: Sequence[str]) -> set[Identity]:
    if len(words) > 2:
        raise BadInput(f"{' '.join(words)!r} is not NAME or ROLE NAME", "give one certificate holder at a time")
    role = parse_role(words[0]) if len(words) == 2 else None
    known = {record.speaks_for() for record in index.records}
    return {identity for identity in known if identity.name == words[-1] and role in (None, identity.role)}


def _by_number(index: Index, number: str) -> CertificateRecord:
    """A serial or fingerprint may be cut to its first 8 digits or more, as long as it fits only one certificate."""
    prefix = number.lower().replace(":", "")
    fits = [r for r in index.records if r.serial.startswith(prefix) or r.fingerprint.startswith(prefix)]
    if len(prefix) < _SHORTEST_PREFIX or not fits:
        hint = "`dcfpca certs list` shows names, serial numbers and fingerprints"
        raise BadInput(f"no certificate has the name, serial number or fingerprint {number!r}", hint)
    if len(fits) > 1:
        raise BadInput(f"{number!r} fits {len(fits)} certificates", "give more digits")
    if fits[0].revoked:
        raise BadInput(
            f"the certificate {fits[0].serial} was revoked on {fits[0].revoked[:10]} already", "nothing was changed"
        )
    return fits[0]


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
        _publish_revocations(authority, _write_index(directory, Index(crl_number=1)), now)
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
        _write_index(authority.directory, list_records(authority.directory).with_record(record))
    return certificate


def revoke_certificates(
    authority: Authority, chosen: tuple[CertificateRecord, ...], now: datetime, reason: x509.ReasonFlags
) -> None:
    """Record the revocation, then publish a list that contains it."""
    with _locked(authority.directory):
        index = list_records(authority.directory).with_revoked(chosen, now, reason.value)
        _publish_revocations(authority, _write_index(authority.directory, index), now)


def renew_revocation_list(authority: Authority, now: datetime, days: int | None) -> None:
    """Publish the same list under the next number, valid for `days` days, or as long as the CA."""
    if days is not None and days < 1:
        raise BadInput(f"a revocation list lasts 1 day or more, not {days}", "leave --days out for as long as the CA")
    with _locked(authority.directory):
        index = list_records(authority.directory)
        index = _write_index(authority.directory, replace(index, crl_number=index.crl_number + 1))
        _publish_revocations(authority, index, now, days)


def issued_path(directory: Path, record: CertificateRecord) -> Path:
    """The path of a certificate's public copy."""
    return directory / "issued" / f"{record.serial}.crt"


def _publish_revocations(authority: Authority, index: Index, now: datetime, days: int | None = None) -> None:
    lines = [_revoked(record) for record in index.records if record.revoked]
    crl = new_revocation_list(lines, authority.certificate, authority.key, index.crl_number, now, days)
    write_file(authority.crl_path, crl.public_bytes(Encoding.PEM))


def _revoked(record: CertificateRecord) -> x509.RevokedCertificate:
    """The line of a revocation list for this certificate."""
    line = x509.RevokedCertificateBuilder().serial_number(int(record.serial, 16))
    line = line.revocation_date(datetime.fromisoformat(record.revoked))
    # RFC 5280 5.3.1: an unspecified reason is left out.
    if (reason := x509.ReasonFlags(record.reason)) is not x509.ReasonFlags.unspecified:
        line = line.add_extension(x509.CRLReason(reason), critical=False)
    return line.build()


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock the directory, so that one process at a time changes it."""
    with (directory / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
