"""Identifiers by which a revoked certificate is recognized.

A SHA-256 of the certificate alone does not do: whoever holds (r, s), an ECDSA signature of the CA, also has (r, n − s),
which is as valid and makes another fingerprint. Serial number, key and identity are signed and stay the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Set as AbstractSet

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding

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

    Its fingerprint is that of both forms of its signature: so revocations by fingerprint hold against either.
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
