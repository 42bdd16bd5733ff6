"""The files a site keeps: NAME.key, NAME.csr until it is answered, NAME.crt and ca.crt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from dcfpca.errors import BadInput
from dcfpca.identity import Identity, Role
from dcfpca.pki.authority import ROLE_DAYS
from dcfpca.pki.ca_directory import Authority, issue_certificate
from dcfpca.pki.key_files import make_directory, refuse_existing_key, write_file, write_new_key
from dcfpca.pki.keys import new_private_key, private_pem
from dcfpca.pki.requests import CertificateRequest, new_request


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
