"""A consortium in memory for the secure sum: real certificates and real signatures."""

from __future__ import annotations

import datetime
import hashlib
from functools import lru_cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dcfpca.errors import BadIdentity
from dcfpca.secagg.keys import SigningIdentity

_SIGNING = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
_DAY = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@lru_cache(maxsize=4096)
def identity_key(name: str, authority: str = "consortium") -> ec.EllipticCurvePrivateKey:
    """A P-256 key that is always the same for one name, so that failing examples repeat."""
    scalar = int.from_bytes(hashlib.sha256(f"{authority}/{name}".encode()).digest(), "big") >> 1
    return ec.derive_private_key(scalar, ec.SECP256R1())


@lru_cache(maxsize=4096)
def certificate(name: str, authority: str = "consortium") -> bytes:
    """A certificate for the name, issued by the authority."""
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, authority)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(identity_key(name, authority).public_key())
        .serial_number(1)
        .not_valid_before(_DAY)
        .not_valid_after(_DAY + datetime.timedelta(days=3650))
    )
    made = builder.sign(identity_key("CA", authority), hashes.SHA256())
    return made.public_bytes(serialization.Encoding.DER)


@lru_cache(maxsize=4096)
def verify(der: bytes, name: str) -> ec.EllipticCurvePublicKey:
    """The public key of a certificate that the consortium's authority issued to this name."""
    parsed = x509.load_der_x509_certificate(der)
    authority = identity_key("CA").public_key()
    try:
        authority.verify(parsed.signature, parsed.tbs_certificate_bytes, ec.ECDSA(hashes.SHA256()))
    except Exception as error:
        raise BadIdentity(f"the certificate of {name} was not issued by the consortium") from error
    if parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value != name:
        raise BadIdentity(f"the certificate is not {name}'s")
    key = parsed.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key


def identity_of(name: str, authority: str = "consortium") -> SigningIdentity:
    key = identity_key(name, authority)
    return SigningIdentity(name, certificate(name, authority), lambda statement: key.sign(statement, _SIGNING), verify)


def site_names(count: int) -> tuple[str, ...]:
    return tuple(f"site-{index:04d}" for index in range(count))
