"""The authority's record of what it has signed: `index.json`, and how certificates are found in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from cryptography import x509

from dcfpca.errors import BadInput
from dcfpca.identity import Identity, fingerprint, identity_of, parse_role
from dcfpca.pki.keys import check_public_key, key_fingerprint, write_file
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
