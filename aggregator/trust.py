"""Whose certificates the aggregator trusts: credentials and revocations, reloaded when their files change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.config import Server
from dcfpca.errors import BadIdentity, DcfpcaError
from dcfpca.identity import Identity, Role, fingerprint
from dcfpca.logs import log
from dcfpca.pki import (
    Credentials,
    check_role,
    load_credentials,
    load_revocations,
    parse_certificate,
    serial_of,
    verify_peer,
)

CHECK_SECONDS = 1.0
"""How often the files are checked; revocation has to take effect within seconds."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The other end of a call, identified by its certificate alone."""

    identity: Identity
    fingerprint: str
    certificate: x509.Certificate
    key: ec.EllipticCurvePublicKey

    @property
    def name(self) -> str:
        """The name in the certificate."""
        return self.identity.name


class Trust:
    """The aggregator's own credentials, and the verification of its callers'."""

    def __init__(self, files: Server, revoked: frozenset[str]) -> None:
        self._files = files
        self._revoked_here = revoked
        self._seen = self._fingerprint_of_files()
        self.credentials = self._load()
        self._revoked_by_ca = self._load_list()
        self._callers: dict[bytes, Caller] = {}
        self._serials: dict[str, str] = {}

    def caller(self, shown: bytes) -> Caller:
        """The caller with this certificate (PEM or DER); raises BadIdentity when it is invalid, expired or revoked."""
        known = self._callers.get(shown)
        now = datetime.now(UTC)
        if known and known.certificate.not_valid_after_utc > now:
            return known
        identity, key = verify_peer(shown, self.credentials.authorities, frozenset(), None, now)
        certificate = parse_certificate(shown)
        caller = Caller(identity, fingerprint(certificate), certificate, key)
        self._serials[caller.fingerprint] = serial_of(certificate)
        if self.is_revoked(caller.fingerprint):
            hint = "ask the holder of the CA for a new certificate"
            raise BadIdentity(f"the certificate of {identity} has been revoked", hint)
        self._callers[shown] = caller
        return caller

    def participant_key(self, der: bytes, name: str) -> ec.EllipticCurvePublicKey:
        """The key with which this participant's signatures verify; raises BadIdentity."""
        who = self.caller(der)
        check_role(who.identity, Role.PARTICIPANT)
        if who.name != name:
            raise BadIdentity(f"the certificate of {who.name} was shown for {name}")
        return who.key

    def is_trusted(self, who: Caller) -> bool:
        """Whether a caller that was trusted when its call began still is."""
        pem = who.certificate.public_bytes(Encoding.PEM)
        try:
            verify_peer(pem, self.credentials.authorities, self.revoked, None, datetime.now(UTC))
        except DcfpcaError:
            return False
        return True

    def is_revoked(self, mark: str) -> bool:
        """Whether the certificate of this fingerprint, shown here before, has been revoked by us or by the CA."""
        return mark in self.revoked or self._serials.get(mark) in self.revoked

    @property
    def revoked(self) -> frozenset[str]:
        """Fingerprints and serial numbers of revoked certificates."""
        return self._revoked_here | self._revoked_by_ca

    def revoke(self, mark: str) -> None:
        """Refuse this fingerprint from now on."""
        self._revoked_here |= {mark}
        self._callers.clear()

    async def watch(self, changed: Callable[[], None]) -> None:
        """Check the files for ever; `changed` is called after they were reloaded."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            seen = self._fingerprint_of_files()
            if seen == self._seen:
                continue
            self._seen = seen
            try:
                self.credentials, self._revoked_by_ca = self._load(), self._load_list()
            except DcfpcaError as error:
                log("credentials_rejected", level="error", reason=str(error), hint=error.hint)
                continue
            self._callers.clear()
            log("credentials_reloaded", not_after=f"{self.credentials.not_after:%Y-%m-%d}")
            changed()

    def _load(self) -> Credentials:
        files = self._files
        return load_credentials(files.ca, files.cert, files.key, now=datetime.now(UTC), role=Role.AGGREGATOR)

    def _load_list(self) -> frozenset[str]:
        if not self._files.crl:
            return frozenset()
        return load_revocations(self._files.crl, self.credentials.authorities, datetime.now(UTC))

    def _fingerprint_of_files(self) -> tuple[tuple[int, int, int], ...]:
        paths = [self._files.ca, self._files.cert, self._files.key, self._files.crl]
        return tuple(_stamp(path) for path in paths if path)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_size, status.st_ino)
