"""Verifies peers' certificates against the consortium's CA and revocation list."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from dcfpca.errors import BadIdentity
from dcfpca.identity import Role
from dcfpca.pki import Credentials, verify_peer
from dcfpca.pki.revocation import load_revocations
from participant.state.revocation_list import KeptRevocationList

CACHE_SECONDS = 3600


@dataclass(slots=True)
class PeerVerifier:
    """Caches verdicts for an hour, and drops them when the CA bundle or the revocation list changes."""

    credentials: Credentials
    crl: Path | None
    kept: KeptRevocationList | None = None
    _verified: dict[bytes, tuple[str, EllipticCurvePublicKey, datetime]] = field(default_factory=dict)
    _crl_version: tuple[tuple[int, int, int] | None, ...] = ()

    def verify(self, certificate: bytes, name: str) -> EllipticCurvePublicKey:
        """The public key of the certificate; BadIdentity unless it belongs to this consortium's participant `name`."""
        self._check_crl_version()
        now = datetime.now(UTC)
        known = self._verified.get(certificate)
        if known is None or (now - known[2]).total_seconds() > CACHE_SECONDS:
            known = self._verify(certificate, now)
            self._verified[certificate] = known
        if known[0] != name:
            raise BadIdentity(f"the certificate shown for {name} is that of {known[0]}")
        return known[1]

    def renew(self, credentials: Credentials) -> None:
        """Verify against the CA bundle of these credentials from now on."""
        self.credentials = credentials
        self._verified.clear()

    def _check_crl_version(self) -> None:
        paths = (self.crl, self.kept.path if self.kept else None)
        version = tuple(_file_version(path) for path in paths if path)
        if version != self._crl_version:
            self._crl_version = version
            self._verified.clear()

    def _verify(self, certificate: bytes, now: datetime) -> tuple[str, EllipticCurvePublicKey, datetime]:
        ours, authorities = self.credentials.identity, self.credentials.authorities
        revoked = load_revocations(self.crl, authorities, now) if self.crl else frozenset()
        fetched = self.kept.read(authorities, now) if self.kept else None
        revoked |= fetched.marks if fetched else frozenset()
        identity, key = verify_peer(certificate, authorities, revoked, Role.PARTICIPANT, now)
        if identity.consortium != ours.consortium:
            raise BadIdentity(f"{identity} belongs to another consortium than {ours}")
        return identity.name, key, now


def _file_version(path: Path) -> tuple[int, int, int] | None:
    status = path.stat() if path.exists() else None
    return (status.st_mtime_ns, status.st_size, status.st_ino) if status else None
