"""Certificate verification: issued by a trusted authority, currently valid, not revoked, and of the right kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from dcfpca.errors import BadIdentity
from dcfpca.identity import Identity, Role, identity_of
from dcfpca.pki.keys import check_public_key
from dcfpca.pki.revocation import is_revoked

SOON_DAYS = 14
"""A certificate with fewer days left should be renewed."""


def whole_days(until: datetime, now: datetime) -> int:
    """Days until then, to the nearest: one issued for 90 days shows 90. Negative once it has expired."""
    left = (until - now) / timedelta(days=1)
    return round(left) if left >= 0 else min(round(left), -1)


MAX_ROLE_DAYS = 398
# Certificates begin a little before they are made, so that a site whose clock is behind can use them at once.
BACKDATE = timedelta(minutes=5)


def load_certificates(path: Path) -> list[x509.Certificate]:
    """Read every certificate in a PEM file; at least one."""
    return parse_certificates(read_certificate_file(path), str(path))


def load_certificate(path: Path) -> x509.Certificate:
    """Read a PEM file that begins with the certificate of interest."""
    return load_certificates(path)[0]


def read_certificate_file(path: Path) -> bytes:
    """The bytes of a certificate file; raises BadIdentity when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        hint = "check the path and that this user may read it"
        raise BadIdentity(f"the certificate {path} cannot be read: {error.strerror}", hint) from None


def parse_certificates(pem: bytes, where: str) -> list[x509.Certificate]:
    """Read PEM bytes; `where` names them in errors."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, x509.InvalidVersion):
        hint = "it should begin with -----BEGIN CERTIFICATE-----"
        raise BadIdentity(f"{where} is not a PEM certificate", hint) from None


def parse_certificate(data: bytes) -> x509.Certificate:
    """Read one certificate as a peer sends it, in DER or (as gRPC reports it) in PEM."""
    try:
        if data.lstrip().startswith(b"-----BEGIN"):
            return x509.load_pem_x509_certificate(data)
        return x509.load_der_x509_certificate(data)
    except (ValueError, x509.InvalidVersion):
        raise BadIdentity("the peer's certificate cannot be decoded", "it is damaged; have it sent again") from None


def serial_of(certificate: x509.Certificate) -> str:
    """The serial number in hex, as lists and revocation lists show it."""
    return f"{certificate.serial_number:x}"


def check_in_force(certificate: x509.Certificate, now: datetime, what: str) -> None:
    """Raise unless `now` lies in the certificate's period of validity."""
    if now < certificate.not_valid_before_utc:
        begin = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        raise BadIdentity(f"{what} is not valid before {begin}", f"this clock says {now:%Y-%m-%d %H:%M} UTC; check it")
    if now > certificate.not_valid_after_utc:
        end = f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        raise BadIdentity(f"{what} expired on {end}", "renew it with `dcfpca certs renew` at the holder of the CA")


def check_issued(certificate: x509.Certificate, authorities: Sequence[x509.Certificate], now: datetime) -> None:
    """Raise unless one of the authorities, itself currently valid, signed the certificate and may sign such a name."""
    issuer = _issuer_of(certificate, authorities)
    check_in_force(issuer, now, f"the CA certificate {issuer.subject.rfc4514_string()}")
    if not _is_authority(issuer):
        hint = "the file named as ca holds a role certificate: use the consortium's ca.crt"
        raise BadIdentity(f"the issuer {issuer.subject.rfc4514_string()} is not a certificate authority", hint)
    check_public_key(issuer.public_key(), "the CA certificate")
    _check_signature(certificate)
    _check_encoding(certificate)
    consortium = identity_of(certificate).consortium
    if not _permits(issuer, consortium):
        sentence = f"the CA {issuer.subject.rfc4514_string()} may not issue certificates for consortium {consortium!r}"
        raise BadIdentity(sentence, "have it issued by the CA of that consortium")


def _issuer_of(certificate: x509.Certificate, authorities: Sequence[x509.Certificate]) -> x509.Certificate:
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            continue
        return authority
    hint = "check that ca.crt is your consortium's, and that it holds both CAs during a change of CA"
    raise BadIdentity(f"the certificate of {_who(certificate)} was not issued by a trusted CA", hint)


def _check_signature(certificate: x509.Certificate) -> None:
    """Refuse SHA-1 and older hashes, whose collisions let two certificates share one signature."""
    used = certificate.signature_hash_algorithm
    if not isinstance(used, hashes.SHA256 | hashes.SHA384 | hashes.SHA512):
        sentence = f"the certificate of {_who(certificate)} is signed with {used.name if used else 'no hash'}"
        raise BadIdentity(sentence, "have it issued again with SHA-256")


def _check_encoding(certificate: x509.Certificate) -> None:
    """Refuse a certificate with bytes that were added after it was signed.

    The signature is a bit string that begins with the number of unused bits at its end. Where the last bits happen to
    be zero, that number can be raised from 0: it decodes to the same signature, but the certificate's bytes differ.
    """
    whole, signature = certificate.public_bytes(Encoding.DER), certificate.signature
    if not whole.endswith(b"\0" + signature):
        hint = "it was changed in transit: have it sent again as the CA issued it"
        raise BadIdentity(f"the certificate of {_who(certificate)} is not encoded as it was signed", hint)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _check_purposes(certificate: x509.Certificate, role: Role, what: str) -> None:
    """Raise unless the extended key usages include those of the role: client for all, also server for an aggregator."""
    try:
        stated = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        stated = set()
    needed = {ExtendedKeyUsageOID.CLIENT_AUTH: "client"}
    if role is Role.AGGREGATOR:
        needed[ExtendedKeyUsageOID.SERVER_AUTH] = "server"
    if lacking := [word for purpose, word in needed.items() if purpose not in stated]:
        hint = "have one made with `dcfpca certs`, or with that extended key usage"
        raise BadIdentity(f"{what} does not say that it is for TLS as a {' and a '.join(lacking)}", hint)


def _permits(authority: x509.Certificate, consortium: str) -> bool:
    """True if the CA's name constraints permit the consortium; a CA without any may issue for every consortium."""
    try:
        constraints = authority.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return True
    permitted, excluded = _uris(constraints.permitted_subtrees), _uris(constraints.excluded_subtrees)
    return consortium not in excluded and (not permitted or consortium in permitted)


def _uris(names: Iterable[x509.GeneralName] | None) -> list[str]:
    return [name.value for name in names or () if isinstance(name, x509.UniformResourceIdentifier)]


def _who(certificate: x509.Certificate) -> str:
    try:
        return str(identity_of(certificate))
    except BadIdentity:
        return "a holder without identity"


def check_role_certificate(
    certificate: x509.Certificate, authorities: Sequence[x509.Certificate], now: datetime, what: str
) -> tuple[Identity, ec.EllipticCurvePublicKey]:
    """Check everything but revocation about a certificate, and return its identity and key."""
    check_issued(certificate, authorities, now)
    check_in_force(certificate, now, what)
    if _is_authority(certificate):
        raise BadIdentity(f"{what} is that of an authority, not of a role", "have one made with `dcfpca certs`")
    if certificate.not_valid_after_utc - certificate.not_valid_before_utc > timedelta(days=MAX_ROLE_DAYS) + BACKDATE:
        raise BadIdentity(f"{what} is valid for more than {MAX_ROLE_DAYS} days", "have a shorter one issued")
    identity, key = identity_of(certificate), check_public_key(certificate.public_key(), what)
    _check_purposes(certificate, identity.role, what)
    return identity, key


def check_role(identity: Identity, expected: Role) -> None:
    """Raise unless the identity has the expected role."""
    if identity.role != expected:
        sentence = f"{identity} is a certificate for the role {identity.role}, and {expected} is needed here"
        raise BadIdentity(sentence, f"use one issued with `dcfpca certs issue {expected} …`")


def verify_peer(
    certificate_der: bytes,
    ca_certs: Sequence[x509.Certificate],
    revoked: AbstractSet[str],
    expected_role: Role | None,
    now: datetime,
) -> tuple[Identity, ec.EllipticCurvePublicKey]:
    """The identity in a peer's certificate (DER or PEM) and its public key; raises unless the certificate is trusted.

    `ca_certs` may hold two authorities during a CA change; `revoked` holds identifiers as
    `pki.revocation` makes them.
    """
    certificate = parse_certificate(certificate_der)
    what = f"the certificate of {_who(certificate)}"
    identity, key = check_role_certificate(certificate, ca_certs, now, what)
    if expected_role is not None:
        check_role(identity, expected_role)
    if is_revoked(certificate, revoked):
        raise BadIdentity(f"{what} has been revoked", "ask the holder of the CA for a new certificate")
    return identity, key
