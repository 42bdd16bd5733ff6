"""A process's TLS credentials: CA bundle, certificate and key, checked together before use."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from dcfpca.errors import BadIdentity
from dcfpca.identity import Identity, Role
from dcfpca.pki.keys import parse_private_key, public_der, read_private_file
from dcfpca.pki.trust import check_role, check_role_certificate, parse_certificates, read_certificate_file


@dataclass(frozen=True, slots=True)
class Credentials:
    """Checked credentials. The PEM fields are what gRPC takes; no secret shows in `repr`."""

    ca_pem: bytes = field(repr=False)
    cert_pem: bytes = field(repr=False)
    key_pem: bytes = field(repr=False)
    certificate: x509.Certificate = field(repr=False)
    private_key: ec.EllipticCurvePrivateKey = field(repr=False)
    authorities: tuple[x509.Certificate, ...] = field(repr=False)
    identity: Identity
    not_after: datetime


def load_credentials(ca: Path, cert: Path, key: Path, *, now: datetime, role: Role | None = None) -> Credentials:
    """Read and check the three files; every failure is one BadIdentity sentence with a hint."""
    ca_pem, cert_pem, key_pem = read_certificate_file(ca), read_certificate_file(cert), read_private_file(key)
    authorities = parse_certificates(ca_pem, str(ca))
    certificate = parse_certificates(cert_pem, str(cert))[0]
    private_key = parse_private_key(key_pem, str(key))
    identity, public_key = check_role_certificate(certificate, authorities, now, f"the certificate {cert}")
    if role is not None:
        check_role(identity, role)
    if public_der(private_key.public_key()) != public_der(public_key):
        hint = "use the key made together with the request for this certificate"
        raise BadIdentity(f"the private key {key} does not belong to the certificate {cert}", hint)
    return Credentials(
        ca_pem=ca_pem,
        cert_pem=cert_pem,
        key_pem=key_pem,
        certificate=certificate,
        private_key=private_key,
        authorities=tuple(authorities),
        identity=identity,
        not_after=certificate.not_valid_after_utc,
    )
