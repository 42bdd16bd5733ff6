"""Checks of this machine: certificate files, directories, disk space."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from cryptography import x509

from dcfpca.doctor import CheckResult, fail, ok, warn
from dcfpca.errors import DcfpcaError
from dcfpca.identity import Role
from dcfpca.pki import SOON_DAYS, Credentials, load_credentials, whole_days

LOW_SPACE = 1 << 30


def check_credentials(
    ca: Path, cert: Path, key: Path, role: Role, now: datetime
) -> tuple[Credentials | None, list[CheckResult]]:
    """Check that the three files match, their role and expiry; the credentials are None if they cannot be used."""
    try:
        own = load_credentials(ca, cert, key, now=now, role=role)
    except DcfpcaError as error:
        return None, [fail("certificate", error)]
    found = [ok("certificate", f"{own.identity}, its key and the CA belong together")]
    found.append(expiry("expiry", "this certificate", own.certificate, now))
    found += [
        expiry("CA expiry", "the consortium's CA certificate", authority, now)
        for authority in own.authorities
        if whole_days(authority.not_valid_after_utc, now) < SOON_DAYS
    ]
    return own, found


def expiry(what: str, whose: str, certificate: x509.Certificate, now: datetime) -> CheckResult:
    """Warns 14 days before a certificate expires."""
    days = whole_days(certificate.not_valid_after_utc, now)
    until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    remedy = "ask the holder of the CA to renew it (`dcfpca certs renew …`); services load it without a restart"
    if days < 0:
        return fail(what, f"{whose} expired on {until}", remedy)
    if days < SOON_DAYS:
        return warn(what, f"{whose} expires in {days} days, on {until}", remedy)
    return ok(what, f"{whose} is valid for {days} days, until {until}")


def check_directory(what: str, directory: Path, needed: int = 0, purpose: str = "one result") -> Iterator[CheckResult]:
    """Check that a directory can be created or written, and has the `needed` bytes for this purpose free."""
    standing = next(path for path in (directory, *directory.resolve().parents) if path.exists())
    if not standing.is_dir():
        yield fail(what, f"{standing} is not a directory", "name another directory in the configuration")
        return
    if not os.access(standing, os.W_OK | os.X_OK):
        remedy = "grant this user write permission, or name another directory"
        yield fail(what, f"{standing} is not writable for this user", remedy)
        return
    yield _check_space(what, directory, shutil.disk_usage(standing).free, needed, purpose)


def _check_space(what: str, directory: Path, free: int, needed: int, purpose: str) -> CheckResult:
    remedy = "free space there, or name a directory on another disk"
    if free < needed:
        sentence = f"{directory} has {_gigabytes(free)} free, and {_gigabytes(needed)} are needed for {purpose}"
        return fail(what, sentence, remedy)
    if free < max(LOW_SPACE, 3 * needed):
        return warn(what, f"{directory} has only {_gigabytes(free)} free", remedy)
    return ok(what, f"{directory} can be written and has {_gigabytes(free)} free")


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count < 1e10 else f"{count / 1e9:.0f} GB"
