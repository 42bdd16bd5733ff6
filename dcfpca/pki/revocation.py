"""Revocation: X.509 CRLs signed by an authority of the bundle, and the identifiers they revoke certificates by.

A SHA-256 of the certificate alone is not enough: whoever holds an ECDSA signature (r, s) of the CA has (r, n − s) too,
which is as valid and makes another fingerprint. Serial number, key and identity are signed and stay the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding

from dcfpca.errors import BadIdentity
from dcfpca.identity import Identity, fingerprint, identity_of
from dcfpca.pki.keys import check_public_key, key_fingerprint

# The orders of P-256 and P-384 (FIPS 186-4, D.1.2.3 and D.1.2.4), the smaller first.
_ORDERS = (
    0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    (2**192 - 1 << 192) + 0xC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973,
)


def serial_mark(issuer: x509.Name, serial: int) -> str:
    """The identifier of one certificate of one authority, independent of the encoding of its signature."""
    return f"serial:{hashlib.sha256(issuer.public_bytes()).hexdigest()[:16]}:{serial:x}"


def key_mark(certificate: x509.Certificate) -> str:
    """The identifier of every certificate for one public key."""
    return f"key:{key_fingerprint(check_public_key(certificate.public_key(), 'the certificate'))}"


def identity_mark(identity: Identity) -> str:
    """The identifier of every present and future certificate of one name and role."""
    return f"identity:{identity}"


def marks_of(certificate: x509.Certificate) -> frozenset[str]:
    """Every identifier under which a valid certificate can have been revoked.

    Fingerprints are included for both forms of the signature, so that a revocation by fingerprint holds for either.
    """
    serial = serial_mark(certificate.issuer, certificate.serial_number)
    names = {serial, key_mark(certificate), identity_mark(identity_of(certificate))}
    return frozenset(names | {fingerprint(certificate), _malleated_fingerprint(certificate)})


def is_revoked(certificate: x509.Certificate, revoked: AbstractSet[str]) -> bool:
    """True if the set holds an identifier of the certificate."""
    return bool(revoked) and not marks_of(certificate).isdisjoint(revoked)


def _malleated_fingerprint(certificate: x509.Certificate) -> str:
    """The fingerprint with the signature (r, n − s). A P-384 signature passes for P-256 with probability 2⁻²⁵⁶."""
    r, s = decode_dss_signature(certificate.signature)
    order = next(n for n in _ORDERS if max(r, s) < n)
    return _fingerprint_with(certificate, r, order - s)


def _fingerprint_with(certificate: x509.Certificate, r: int, s: int) -> str:
    """SHA-256 of the certificate with another signature in place of its own."""
    whole = certificate.public_bytes(Encoding.DER)
    signature, other = certificate.signature, encode_dss_signature(r, s)
    signed = certificate.tbs_certificate_bytes
    head = whole[whole.index(signed) : -len(_bit_string(signature))]
    body = head + _bit_string(other)
    return hashlib.sha256(b"\x30" + _length(len(body)) + body).hexdigest()


def _bit_string(content: bytes) -> bytes:
    return b"\x03" + _length(len(content) + 1) + b"\x00" + content


def _length(size: int) -> bytes:
    """A DER length."""
    if size < 0x80:
        return bytes([size])
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(digits)]) + digits


_PEM_CRL = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RevocationLists:
    """The content of one file of revocation lists: revoked certificates, each list's issue, and the earliest expiry."""

    marks: frozenset[str]
    issues: Mapping[str, tuple[int, datetime]]
    until: datetime | None

    def is_older_than(self, seen: RevocationLists) -> bool:
        """True if a list that was seen before is missing now, or has been replaced by an earlier issue."""
        return any(issuer not in self.issues or self.issues[issuer] < issue for issuer, issue in seen.issues.items())


def load_revocations(path: Path, authorities: Sequence[x509.Certificate], now: datetime) -> frozenset[str]:
    """The identifiers that the lists in a PEM file revoke; during a change of CA it holds one list of each."""
    return read_lists(read_list_file(path), str(path), authorities, now).marks


def read_list_file(path: Path) -> bytes:
    """The bytes of a revocation list; raises BadIdentity when the file cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        hint = "copy crl.pem from the holder of the CA; `dcfpca certs init` writes an empty one"
        raise BadIdentity(f"the revocation list {path} cannot be read: {error.strerror}", hint) from None


def read_lists(data: bytes, where: str, authorities: Sequence[x509.Certificate], now: datetime) -> RevocationLists:
    """The lists in PEM bytes, each signed by one of the authorities and not expired; `where` names them in errors."""
    lists = _decoded(data, where)
    for crl in lists:
        if not any(_signed_by(crl, authority) for authority in authorities):
            hint = "use the crl.pem that lies beside the ca.crt in use"
            raise BadIdentity(f"the revocation list {where} is not signed by a trusted CA", hint)
    return _in_force(lists, where, now)


def read_trusted_lists(
    data: bytes, where: str, authorities: Sequence[x509.Certificate], now: datetime
) -> RevocationLists:
    """The lists that one of the authorities signed; ignores others, which belong to a future or former CA."""
    lists = [crl for crl in _decoded(data, where) if any(_signed_by(crl, authority) for authority in authorities)]
    return _in_force(lists, where, now)


def _decoded(data: bytes, where: str) -> list[x509.CertificateRevocationList]:
    lists = [_read_list(pem, where) for pem in _PEM_CRL.findall(data)]
    if not lists:
        raise BadIdentity(f"the revocation list {where} is not in PEM", "it should begin with -----BEGIN X509 CRL-----")
    return lists


def _read_list(pem: bytes, where: str) -> x509.CertificateRevocationList:
    try:
        return x509.load_pem_x509_crl(pem)
    except (ValueError, x509.InvalidVersion):
        hint = "copy it again from the holder of the CA"
        raise BadIdentity(f"the revocation list {where} cannot be decoded", hint) from None


def _in_force(lists: Sequence[x509.CertificateRevocationList], where: str, now: datetime) -> RevocationLists:
    """The content of the lists; raises when one has expired, as it may miss a revocation."""
    ends = [crl.next_update_utc for crl in lists if crl.next_update_utc is not None]
    until = min(ends, default=None)
    if until is not None and until < now:
        hint = "get the present list from the holder of the CA, who renews it with `dcfpca certs crl`"
        raise BadIdentity(f"the revocation list {where} was superseded on {until:%Y-%m-%d}", hint)
    marks = frozenset(serial_mark(crl.issuer, line.serial_number) for crl in lists for line in crl)
    return RevocationLists(marks, {crl.issuer.rfc4514_string(): _issue(crl) for crl in lists}, until)


def _issue(crl: x509.CertificateRevocationList) -> tuple[int, datetime]:
    """The number (0 without one) and the date of a list; they increase from one issue to the next."""
    try:
        number = crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound:
        number = 0
    return number, crl.last_update_utc


def _signed_by(crl: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    if crl.issuer != authority.subject:
        return False
    try:
        return crl.is_signature_valid(check_public_key(authority.public_key(), "the CA certificate"))
    except (TypeError, UnsupportedAlgorithm):
        return False
