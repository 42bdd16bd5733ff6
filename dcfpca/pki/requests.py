"""Certificate signing requests: each carries the requested identity and proves possession of the key."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dcfpca.errors import BadIdentity, BadInput
from dcfpca.identity import Identity, Role, identity_in
from dcfpca.pki.keys import check_public_key

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
