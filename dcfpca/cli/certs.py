"""`dcfpca certs`: the consortium's certificate authority, and the requests sites make of it."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from cryptography import x509

from dcfpca.cli.certs_view import certificate_document, print_list, report
from dcfpca.errors import BadIdentity, BadInput, Refused
from dcfpca.identity import Identity, Role
from dcfpca.pki.authority import CA_DAYS, ROLE_DAYS, CertificateRequest, read_request, wanted_again
from dcfpca.pki.ca_directory import (
    Authority,
    choose_identity,
    choose_records,
    create_authority,
    issue_certificate,
    issued_path,
    list_records,
    open_authority,
    record_of,
    renew_revocation_list,
    revoke_certificates,
)
from dcfpca.pki.credential_files import issue_credentials, place_certificate, request_certificate, site_files
from dcfpca.pki.keys import key_fingerprint
from dcfpca.pki.trust import load_certificate
from dcfpca.text.console import say

app = typer.Typer(
    help="Make a consortium CA, ask for certificates, approve, renew and revoke them.", no_args_is_help=True
)

CaDir = Annotated[Path, typer.Option("--dir", help="Directory of the certificate authority.")]
Days = Annotated[int, typer.Option("--days", help="Days the certificate is valid.")]
Hosts = Annotated[
    list[str] | None, typer.Option("--host", help="Aggregator only: a name or address that sites dial. Repeatable.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing private key.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Who = Annotated[list[str], typer.Argument(metavar="[ROLE] NAME", help="Whose certificate.")]


class Reason(StrEnum):
    """Reasons for a revocation, as RFC 5280 names them."""

    UNSPECIFIED = "unspecified"
    KEY_COMPROMISE = "keyCompromise"
    SUPERSEDED = "superseded"
    LEFT = "cessationOfOperation"


@app.command()
def init(
    directory: CaDir,
    consortium: Annotated[str, typer.Option(help="Name of the consortium; it is part of every identity.")],
    days: Days = CA_DAYS,
    as_json: Json = False,
) -> None:
    """Make the consortium's CA in a new directory."""
    authority = create_authority(directory, consortium, _now(), days)
    document = {"consortium": consortium, "ca": str(authority.ca_path), "crl": str(authority.crl_path)}
    lines = [
        f"CA of {consortium} made in {directory}, valid for {days} days",
        f"give {authority.ca_path} to everyone; keep {directory / 'ca.key'} to yourself",
    ]
    report(as_json, document, lines)


@app.command()
def request(
    *,
    role: Annotated[Role, typer.Argument(help="What the certificate is for.")],
    name: Annotated[str, typer.Argument(help="The holder's name, such as hospital-a.")],
    consortium: Annotated[str, typer.Option(help="Name of the consortium.")],
    out: Annotated[Path, typer.Option("--out", "--dir", help="Directory for NAME.key and NAME.csr.")],
    host: Hosts = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """At the site: make a private key, which stays there, and a request for the holder of the CA."""
    identity = Identity(consortium, role, name)
    files = request_certificate(identity, host or [], out, force=force)
    key = key_fingerprint(read_request(files.request.read_bytes(), str(files.request)).public_key)
    document = {"identity": str(identity), "key": str(files.key), "request": str(files.request), "key_fingerprint": key}
    lines = [
        f"request for {identity}: {files.request}",
        f"private key, stays here: {files.key}",
        f"send the request to the holder of the CA, and tell them the key fingerprint over another channel:\n  {key}",
    ]
    report(as_json, document, lines)


@app.command()
def approve(
    *,
    directory: CaDir,
    csr: Annotated[Path, typer.Argument(help="The request a site has sent.")],
    out: Annotated[Path | None, typer.Option(help="File or directory to write; by default beside CSR.")] = None,
    days: Days = ROLE_DAYS,
    expect: Annotated[str, typer.Option(help="The identity you mean to sign, spiffe://…; any other is refused.")] = "",
    expect_key: Annotated[
        str, typer.Option(help="The key fingerprint the site told you; without it, the key is shown.")
    ] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="The identity is in use; give it to this key too.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed without a terminal.")] = False,
    as_json: Json = False,
) -> None:
    """At the holder of the CA: show what a request asks for, and sign it."""
    authority = open_authority(directory)
    wanted = read_request(_read(csr), str(csr))
    _show(wanted, days)
    _check_identity(wanted, expect)
    _check_key(wanted, expect_key)
    _check_clean(authority, key_fingerprint(wanted.public_key))
    if not replace:
        _check_unused(authority, wanted.identity, key_fingerprint(wanted.public_key), "approve with --replace")
    _confirm(yes)
    certificate = issue_certificate(authority, wanted, _now(), days)
    path = _destination(out or csr.parent, wanted.identity.name)
    place_certificate(authority, certificate, path)
    lines = [f"signed: {path}", f"send {path.name} and ca.crt back to the site"]
    report(as_json, certificate_document(record_of(certificate), _now()) | {"certificate": str(path)}, lines)


@app.command()
def issue(
    *,
    directory: CaDir,
    role: Annotated[Role, typer.Argument(help="What the certificate is for.")],
    name: Annotated[str, typer.Argument(help="The holder's name, such as hospital-a.")],
    host: Hosts = None,
    days: Days = ROLE_DAYS,
    out: Annotated[Path | None, typer.Option(help="Directory for NAME.key, NAME.crt, ca.crt; default --dir.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make key and certificate in one place: for development, or when the CA's holder is the site."""
    authority = open_authority(directory)
    if not force:
        _check_unused(authority, Identity(authority.consortium, role, name), "", "issue with --force")
    files = issue_credentials(
        authority, role, name, out or directory, now=_now(), hosts=host or [], days=days, force=force
    )
    record = record_of(load_certificate(files.certificate))
    paths = {"certificate": str(files.certificate), "key": str(files.key), "ca": str(files.ca)}
    lines = [
        f"certificate of {record.identity}, {days} days: {files.certificate}",
        f"the private key was made here, at the CA, not at the site: {files.key}",
    ]
    report(as_json, certificate_document(record, _now()) | paths, lines)


@app.command()
def renew(
    *,
    directory: CaDir,
    who: Who,
    host: Hosts = None,
    days: Days = ROLE_DAYS,
    out: Annotated[Path | None, typer.Option(help="File or directory for the certificate; by default --dir.")] = None,
    as_json: Json = False,
) -> None:
    """Sign the next certificate for the key that is in use; the private key stays where it is."""
    authority = open_authority(directory)
    index = list_records(directory)
    latest = index.of(choose_identity(index, who))[-1]
    _check_clean(authority, latest.key)
    wanted = wanted_again(load_certificate(issued_path(directory, latest)))
    if host:
        wanted = CertificateRequest(wanted.identity, tuple(host), wanted.public_key)
    certificate = issue_certificate(authority, wanted, _now(), days)
    path = _destination(out or directory, wanted.identity.name)
    place_certificate(authority, certificate, path)
    lines = [
        f"certificate of {wanted.identity}, {days} days: {path}",
        "put it in place; services reload it by themselves",
    ]
    report(as_json, certificate_document(record_of(certificate), _now()) | {"certificate": str(path)}, lines)


@app.command()
def revoke(
    directory: CaDir,
    who: Annotated[list[str], typer.Argument(metavar="[ROLE] NAME | SERIAL | FINGERPRINT", help="What to revoke.")],
    reason: Annotated[Reason, typer.Option(help="Why; the revocation list contains it.")] = Reason.UNSPECIFIED,
    as_json: Json = False,
) -> None:
    """Revoke a certificate, or all those of a name, and write the new revocation list."""
    authority = open_authority(directory)
    chosen = choose_records(list_records(directory), who, _now())
    revoke_certificates(authority, chosen, _now(), x509.ReasonFlags(reason.value))
    document = {"revoked": [record.serial for record in chosen], "crl": str(authority.crl_path)}
    lines = [f"revoked {record.identity} serial {record.serial}" for record in chosen]
    report(as_json, document, [*lines, f"copy {authority.crl_path} to where the aggregator reads it"])


@app.command()
def crl(
    directory: CaDir,
    days: Annotated[int | None, typer.Option(help="Days until it expires; by default as long as the CA.")] = None,
    as_json: Json = False,
) -> None:
    """Sign the revocation list again under the next number: before it expires, or to change how long it is valid."""
    authority = open_authority(directory)
    renew_revocation_list(authority, _now(), days)
    until = "as long as the CA" if days is None else f"{days} days"
    lines = [
        f"revocation list signed again, for {until}",
        f"copy {authority.crl_path} to where the aggregator reads it",
    ]
    report(as_json, {"crl": str(authority.crl_path), "days": days}, lines)


@app.command("list")
def list_certificates(directory: CaDir, as_json: Json = False) -> None:
    """Show every certificate the CA has signed."""
    index = list_records(directory)
    print_list(as_json, load_certificate(directory / "ca.crt"), index, _now())


def _now() -> datetime:
    return datetime.now(UTC)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"the request {path} cannot be read: {error.strerror}", "check the path") from None


def _show(wanted: CertificateRequest, days: int) -> None:
    rows = {
        "identity": str(wanted.identity),
        "role": str(wanted.identity.role),
        "hosts": ", ".join(wanted.hosts) or "none",
        "key": f"{wanted.public_key.curve.name}, fingerprint {key_fingerprint(wanted.public_key)}",
        "valid": f"{days} days",
    }
    for word, value in rows.items():
        say(f"{word:>10}  {value}")


def _check_identity(wanted: CertificateRequest, expected: str) -> None:
    if expected and Identity.parse(expected) != wanted.identity:
        hint = "the request is somebody else's, or asks for another role: ask the site before you sign it"
        raise BadIdentity(f"the request asks for {wanted.identity}, not for {expected}", hint)


def _check_key(wanted: CertificateRequest, expected: str) -> None:
    found = key_fingerprint(wanted.public_key)
    if expected and expected.lower().replace(":", "") != found:
        hint = "the request was exchanged or damaged in transit: have it sent again"
        raise BadIdentity(f"the request's key has the fingerprint {found}, not the one expected", hint)


def _check_clean(authority: Authority, key: str) -> None:
    """Refuse a key with a revoked certificate, as it may be compromised, unless the certificate was only superseded."""
    for record in list_records(authority.directory).records:
        if record.key == key and record.revoked and record.reason != Reason.SUPERSEDED:
            hint = "a revoked key is not used again: `dcfpca certs request` at the site makes a new one"
            raise Refused(f"this key of {record.identity} was revoked on {record.revoked[:10]}", hint)


def _check_unused(authority: Authority, identity: Identity, key: str, remedy: str) -> None:
    """Refuse an identity that is in use with another key: it may be an impostor's request, so a person decides."""
    held = [r for r in list_records(authority.directory).of(identity) if r.is_live(_now()) and r.key != key]
    if held:
        hint = f"if the site itself is changing its key, {remedy} and revoke the old certificate once it is out of use"
        raise Refused(f"{identity} is in use with another key (serial {held[-1].serial})", hint)


def _confirm(settled: bool) -> None:
    """Ask for confirmation before signing: at the terminal, or by --yes where there is none."""
    if settled:
        return
    if not typer.get_text_stream("stdin").isatty():
        hint = "check the request above, then repeat with --yes, preferably with --expect and --expect-key"
        raise Refused("nothing was signed: there is no terminal to ask on", hint)
    if not typer.confirm("sign this?", err=True):
        raise Refused("nothing was signed", "the request is still there")


def _destination(out: Path, name: str) -> Path:
    return site_files(out, name).certificate if out.is_dir() else out
