"""The consortium's certificate authority: signs its own certificate, role certificates and revocation lists.

A signing request carries the requested identity and proves possession of the key.

Everything here is bytes and objects; `ca_directory` keeps the files. The time is an argument.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dcfpca.errors import BadIdentity, BadInput
from dcfpca.identity import Identity, Role, check_name, identity_in
from dcfpca.pki.keys import check_public_key
from dcfpca.pki.trust import BACKDATE, MAX_ROLE_DAYS, check_in_force

_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """The requested identity and public key, and the host names of an aggregator."""

    identity: Identity
    hosts: tuple[str, ...]
    public_key: ec.EllipticCurvePublicKey


def new_request(
    identity: Identity, hosts: Sequence[str], key: ec.EllipticCurvePrivateKey
) -> x509.CertificateSigningRequest:
    """A signing request for this identity, which proves possession of the key."""
    check_hosts(identity, hosts)
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject(identity.consortium, identity.name))
        .add_extension(alternative_names(identity, hosts), critical=False)
        .sign(key, hashes.SHA256())
    )


def read_request(pem: bytes, where: str) -> CertificateRequest:
    """The identity, hosts and key in a signing request; checks its signature and ignores its other contents."""
    try:
        request = x509.load_pem_x509_csr(pem)
        extensions = request.extensions
        public_key = request.public_key()
        sound = request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension):
        raise BadIdentity(f"{where} is not a PEM signing request", "make one with `dcfpca certs request`") from None
    if not sound:
        raise BadIdentity(f"the signature of the request {where} is wrong", "have it sent again, it was changed")
    identity = identity_in(extensions, "request")
    return CertificateRequest(identity, hosts_in(extensions), check_public_key(public_key, f"the request {where}"))


def wanted_again(certificate: x509.Certificate) -> CertificateRequest:
    """A request for the successor of this certificate: same identity, hosts and key."""
    identity = identity_in(certificate.extensions, "certificate")
    return CertificateRequest(
        identity, hosts_in(certificate.extensions), check_public_key(certificate.public_key(), "the certificate")
    )


def hosts_in(extensions: x509.Extensions) -> tuple[str, ...]:
    """The DNS names and addresses among the subject alternative names."""
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *(str(address) for address in addresses))


def check_hosts(identity: Identity, hosts: Sequence[str]) -> None:
    """Raise unless an aggregator has at least one host, and any other role none."""
    serves = identity.role is Role.AGGREGATOR
    if serves and not hosts:
        hint = "name each host that participants dial with --host, such as --host aggregator.example.org"
        raise BadInput("a certificate for an aggregator needs a host name or address", hint)
    if hosts and not serves:
        hint = "only the aggregator is dialled; leave --host out"
        raise BadInput(f"a certificate for the role {identity.role} carries no host names, asked: {hosts[0]}", hint)


def subject(organization: str, common_name: str) -> x509.Name:
    """The distinguished name; informational, never used in decisions."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def alternative_names(identity: Identity, hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    """The subject alternative names, which decisions use: the identity, then the hosts."""
    uri = x509.UniformResourceIdentifier(str(identity))
    return x509.SubjectAlternativeName([uri, *(_host_name(host) for host in hosts)])


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not _HOST.fullmatch(host.lower()):
        hint = "write it without port or scheme, as in aggregator.example.org or 10.0.0.7"
        raise BadInput(f"{host!r} is not a host name or an IP address", hint)
    return x509.DNSName(host.lower())


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
    identity, public_key = wanted.identity, wanted.public_key
    if (ours := consortium_of(ca)) != identity.consortium:
        sentence = f"the request is for the consortium {identity.consortium!r}, and this CA is that of {ours!r}"
        raise BadIdentity(sentence, f"make it with `dcfpca certs request --consortium {ours} …`")
    check_hosts(identity, wanted.hosts)
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


def consortium_of(ca: x509.Certificate) -> str:
    """The consortium an authority made by `new_authority` signs for."""
    try:
        names = ca.extensions.get_extension_for_class(x509.NameConstraints).value.permitted_subtrees or []
    except x509.ExtensionNotFound:
        names = []
    if len(names) != 1 or not isinstance(names[0], x509.UniformResourceIdentifier):
        raise BadIdentity("the CA certificate names no consortium", "make the CA with `dcfpca certs init`")
    return names[0].value


def new_revocation_list(
    revocations: Iterable[x509.RevokedCertificate],
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
        builder = builder.add_revoked_certificate(revocation)
    return builder.sign(ca_key, hashes.SHA256())


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
