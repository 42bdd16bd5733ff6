"""The consortium's certificate authority: signs its own certificate, role certificates and revocation lists.

Everything here is bytes and objects; `ca_directory` keeps the files. The time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from dcfpca.errors import BadIdentity, BadInput
from dcfpca.identity import Role, check_name
from dcfpca.pki.keys import check_public_key
from dcfpca.pki.requests import CertificateRequest, alternative_names, check_hosts, subject
from dcfpca.pki.trust import BACKDATE, MAX_ROLE_DAYS, check_in_force

ROLE_DAYS = 90
CA_DAYS = 3650
MAX_CA_DAYS = 7300


def new_authority(
    consortium: str, key: ec.EllipticCurvePrivateKey, now: datetime, days: int = CA_DAYS
) -> x509.Certificate:
    """A self-signed CA that may sign role certificates of this consortium, and no other authority."""
    check_name(consortium, "consortium")
    if not 1 <= days <= MAX_CA_DAYS:
        raise BadInput(f"a CA lasts 1 to {MAX_CA_DAYS} days, not {days}", "leave --days out for ten years")
    serial = x509.random_serial_number()
    # The serial in the name tells two authorities of one consortium apart during a change of CA.
    name = subject(consortium, f"CA {serial:x}"[:16])
    scope = x509.NameConstraints([x509.UniformResourceIdentifier(consortium)], excluded_subtrees=None)
    return (
        _builder(name, name, key.public_key(), serial)
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(scope, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def sign_certificate(
    wanted: CertificateRequest,
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    now: datetime,
    days: int = ROLE_DAYS,
) -> x509.Certificate:
    """A role certificate for the request, valid from now for `days` days."""
    check_wanted(wanted, ca)
    identity, public_key = wanted.identity, wanted.public_key
    serves = identity.role is Role.AGGREGATOR
    return (
        _builder(subject(identity.consortium, identity.name), ca.subject, public_key, x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(_end(now, days, ca))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_purposes(serves)), critical=False)
        .add_extension(alternative_names(identity, wanted.hosts), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(_ec_key(ca)), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def check_wanted(wanted: CertificateRequest, ca: x509.Certificate) -> None:
    """Raise unless this authority may sign it."""
    if (ours := consortium_of(ca)) != wanted.identity.consortium:
        sentence = f"the request is for the consortium {wanted.identity.consortium!r}, and this CA is that of {ours!r}"
        raise BadIdentity(sentence, f"make it with `dcfpca certs request --consortium {ours} …`")
    check_hosts(wanted.identity, wanted.hosts)


def consortium_of(ca: x509.Certificate) -> str:
    """The consortium an authority made by `new_authority` signs for."""
    try:
        names = ca.extensions.get_extension_for_class(x509.NameConstraints).value.permitted_subtrees or []
    except x509.ExtensionNotFound:
        names = []
    if len(names) != 1 or not isinstance(names[0], x509.UniformResourceIdentifier):
        raise BadIdentity("the CA certificate names no consortium", "make the CA with `dcfpca certs init`")
    return names[0].value


@dataclass(frozen=True, slots=True)
class Revocation:
    """One line of a revocation list."""

    serial: int
    when: datetime
    reason: x509.ReasonFlags


def new_revocation_list(
    revocations: Iterable[Revocation],
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    number: int,
    now: datetime,
    days: int | None = None,
) -> x509.CertificateRevocationList:
    """A signed list of revoked serial numbers, issued at each revocation; valid for `days`, else as long as the CA."""
    end = ca.not_valid_after_utc if days is None else min(now + timedelta(days=days), ca.not_valid_after_utc)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(ca.subject)
        .last_update(now)
        .next_update(end)
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(_ec_key(ca)), critical=False)
    )
    for revocation in revocations:
        builder = builder.add_revoked_certificate(_line(revocation))
    return builder.sign(ca_key, hashes.SHA256())


def _line(revocation: Revocation) -> x509.RevokedCertificate:
    line = x509.RevokedCertificateBuilder().serial_number(revocation.serial).revocation_date(revocation.when)
    # RFC 5280 5.3.1: an unspecified reason is left out.
    if revocation.reason is not x509.ReasonFlags.unspecified:
        line = line.add_extension(x509.CRLReason(revocation.reason), critical=False)
    return line.build()


def _end(now: datetime, days: int, ca: x509.Certificate) -> datetime:
    if not 1 <= days <= MAX_ROLE_DAYS:
        hint = f"leave --days out for {ROLE_DAYS} days; renewing is cheap"
        raise BadInput(f"a role certificate lasts 1 to {MAX_ROLE_DAYS} days, not {days}", hint)
    check_in_force(ca, now, "the CA certificate")
    end = now + timedelta(days=days)
    if end > ca.not_valid_after_utc:
        left = (ca.not_valid_after_utc - now).days
        raise BadInput(f"the CA expires in {left} days, before the certificate would", "make the next CA now")
    return end


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, serial: int
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    return builder.public_key(key).serial_number(serial)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _purposes(serves: bool) -> list[x509.ObjectIdentifier]:
    client, server = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
    return [server, client] if serves else [client]


def _ec_key(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    return check_public_key(certificate.public_key(), "the certificate")
