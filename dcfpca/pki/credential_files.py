"""The files a site keeps: NAME.key, NAME.csr until it is answered, NAME.crt and ca.crt; loaded only if they match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from dcfpca.errors import BadIdentity, BadInput
from dcfpca.identity import Identity, Role
from dcfpca.pki.authority import ROLE_DAYS, CertificateRequest, new_request
from dcfpca.pki.ca_directory import Authority, issue_certificate
from dcfpca.pki.keys import (
    make_directory,
    new_private_key,
    parse_private_key,
    private_pem,
    public_der,
    read_private_file,
    refuse_existing_key,
    write_file,
    write_new_key,
)
from dcfpca.pki.trust import check_role, check_role_certificate, parse_certificates, read_certificate_file


@dataclass(frozen=True, slots=True)
class SiteFiles:
    """The paths of one identity's files."""

    key: Path
    request: Path
    certificate: Path
    ca: Path


def site_files(out: Path, name: str) -> SiteFiles:
    """The file names for one identity in a directory; `ca` is taken."""
    if name == "ca":
        raise BadInput("the name 'ca' is kept for the files of the authority", "choose another name")
    return SiteFiles(out / f"{name}.key", out / f"{name}.csr", out / f"{name}.crt", out / "ca.crt")


def request_certificate(identity: Identity, hosts: Sequence[str], out: Path, *, force: bool = False) -> SiteFiles:
    """Make a private key, which stays here, and a signing request for the holder of the CA."""
    files = site_files(out, identity.name)
    key = new_private_key()
    request = new_request(identity, hosts, key)
    make_directory(out)
    write_new_key(files.key, private_pem(key), force=force)
    write_file(files.request, request.public_bytes(Encoding.PEM))
    return files


def issue_credentials(
    authority: Authority,
    role: Role,
    name: str,
    out: Path,
    *,
    now: datetime,
    hosts: Sequence[str] = (),
    days: int = ROLE_DAYS,
    force: bool = False,
) -> SiteFiles:
    """Make key and certificate in one place: for development, and where the CA holder is the site."""
    files = site_files(out, name)
    make_directory(out)
    if not force:
        refuse_existing_key(files.key)
    key = new_private_key()
    wanted = CertificateRequest(Identity(authority.consortium, role, name), tuple(hosts), key.public_key())
    certificate = issue_certificate(authority, wanted, now, days)
    write_new_key(files.key, private_pem(key), force=force)
    place_certificate(authority, certificate, files.certificate)
    return files


def place_certificate(authority: Authority, certificate: x509.Certificate, path: Path) -> None:
    """Write a certificate and the CA's certificate to the paths at which their holder reads them."""
    make_directory(path.parent)
    write_file(path, certificate.public_bytes(Encoding.PEM))
    ca = path.parent / "ca.crt"
    # A bundle with two CAs, or another consortium's, is the site's own affair: only a missing file is filled in.
    if not ca.exists():
        write_file(ca, authority.ca_path.read_bytes())


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
