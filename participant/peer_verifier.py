"""Verifies peers' certificates against the consortium's CA and revocation list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from dcfpca.atomic_files import file_version
from dcfpca.errors import BadIdentity
from dcfpca.identity import Role
from dcfpca.pki.credential_files import Credentials
from dcfpca.pki.keys import write_file
from dcfpca.pki.revocation import RevocationLists, load_revocations, read_list_file, read_trusted_lists
from dcfpca.pki.trust import verify_peer

FILE = "crl.pem"
_FETCHED = "from the aggregator"


@dataclass(frozen=True, slots=True)
class KeptRevocationList:
    """The consortium's revocation list in the state directory of a site; none before the first was fetched.

    The aggregator only carries it. The CA signed it, and an earlier issue than the one kept is refused. So an
    aggregator can hold a new list back until the one kept runs out; it can neither invent one nor bring a revoked peer
    back by an old one.
    """

    path: Path

    @classmethod
    def in_state(cls, directory: Path) -> KeptRevocationList:
        """The one in this state directory."""
        return cls(directory / FILE)

    def read(self, authorities: Sequence[x509.Certificate], now: datetime) -> RevocationLists | None:
        """What is kept; BadIdentity when it is damaged or expired: no peer can be verified then."""
        if not self.path.exists():
            return None
        return read_trusted_lists(read_list_file(self.path), str(self.path), authorities, now)

    def take(self, pem: bytes, authorities: Sequence[x509.Certificate], now: datetime) -> bool:
        """Keep a list that was fetched; whether it is another one. Raises BadIdentity and keeps what there was."""
        kept = self.path.read_bytes() if self.path.exists() else b""
        if pem == kept:
            return False
        if not pem:
            raise BadIdentity("the aggregator has no revocation list", "its operator sets [server] crl")
        fetched = read_trusted_lists(pem, _FETCHED, authorities, now)
        if kept and fetched.is_older_than(self._seen(kept, authorities)):
            hint = "ask the aggregator's operator for the present list; this site goes on with the one it has"
            raise BadIdentity("the revocation list from the aggregator is older than the one seen before", hint)
        if not fetched.issues:
            hint = "the aggregator needs the crl.pem of this consortium's CA"
            raise BadIdentity("the revocation list from the aggregator is not signed by a trusted CA", hint)
        write_file(self.path, pem)
        return True

    def _seen(self, kept: bytes, authorities: Sequence[x509.Certificate]) -> RevocationLists:
        """What is kept, also where it has run out: a list that has is still not to be followed by an older one."""
        return read_trusted_lists(kept, str(self.path), authorities, datetime.min.replace(tzinfo=UTC))


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
        version = tuple(file_version(path) for path in paths if path)
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
