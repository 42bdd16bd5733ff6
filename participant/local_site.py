"""The site as a whole: its data, name and policy, and how it proves and checks identities."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from dcfpca import secagg
from dcfpca.errors import BadIdentity
from dcfpca.identity import Role
from dcfpca.logs import log
from dcfpca.pki import Credentials, load_credentials, sign, verify_peer
from dcfpca.pki.revocation import load_revocations
from dcfpca.rpca.method import Columns
from dcfpca.spec import RunSpec
from participant.config import Config
from participant.data import DataFacts, Matrix, choose, measure, open_matrix
from participant.policy import SiteFacts
from participant.progress import Meter, MeteredColumns
from participant.revocation_list import KeptRevocationList


@dataclass(slots=True)
class Believer:
    """Judges peers' certificates by the consortium's CA and revocation list: once an hour, and when that changes."""

    credentials: Credentials
    crl: Path | None
    kept: KeptRevocationList | None = None
    _believed: dict[bytes, tuple[str, EllipticCurvePublicKey, datetime]] = field(default_factory=dict)
    _crl_seen: tuple[tuple[int, int, int] | None, ...] = ()

    def verify(self, certificate: bytes, name: str) -> EllipticCurvePublicKey:
        """The public key in a peer's certificate, if it is a participant of this consortium with this name."""
        self._look_at_list()
        now = datetime.now(UTC)
        known = self._believed.get(certificate)
        if known is None or (now - known[2]).total_seconds() > 3600:
            known = self._look(certificate, now)
            self._believed[certificate] = known
        if known[0] != name:
            raise BadIdentity(f"the certificate shown for {name} is that of {known[0]}")
        return known[1]

    def renew(self, credentials: Credentials) -> None:
        """Judge by another CA bundle from now on."""
        self.credentials = credentials
        self._believed.clear()

    def _look_at_list(self) -> None:
        seen = tuple(_stamp(path) for path in (self.crl, self.kept.path if self.kept else None) if path)
        if seen != self._crl_seen:
            self._crl_seen = seen
            self._believed.clear()

    def _look(self, certificate: bytes, now: datetime) -> tuple[str, EllipticCurvePublicKey, datetime]:
        ours, authorities = self.credentials.identity, self.credentials.authorities
        revoked = load_revocations(self.crl, authorities, now) if self.crl else frozenset()
        fetched = self.kept.read(authorities, now) if self.kept else None
        revoked |= fetched.marks if fetched else frozenset()
        identity, key = verify_peer(certificate, authorities, revoked, Role.PARTICIPANT, now)
        if identity.consortium != ours.consortium:
            raise BadIdentity(f"{identity} belongs to another consortium than {ours}")
        return identity.name, key, now


def _stamp(path: Path) -> tuple[int, int, int] | None:
    status = path.stat() if path.exists() else None
    return (status.st_mtime_ns, status.st_size, status.st_ino) if status else None


@dataclass(slots=True)
class LocalSite:
    """What the daemon knows about its own site; `credentials` may be renewed while it runs."""

    credentials: Credentials
    believer: Believer
    matrix: Matrix = field(repr=False)
    facts: SiteFacts
    data: DataFacts

    def columns(self, spec: RunSpec) -> Columns:
        """The local matrix, with the features that the spec names, in its order."""
        return choose(self.matrix, spec.features, f"of {self.name}").columns

    @property
    def name(self) -> str:
        """The participant's name, from its certificate."""
        return self.facts.name

    def sign(self, statement: bytes) -> bytes:
        """Sign with the identity key."""
        return sign(self.credentials.private_key, statement)

    def identity(self) -> secagg.Identity:
        """The site's identity as the secure sum uses it: certificate and key that belong together, even if renewed."""
        credentials = self.credentials
        certificate = credentials.certificate.public_bytes(Encoding.DER)
        return secagg.Identity(
            name=self.name,
            certificate=certificate,
            sign=lambda statement: sign(credentials.private_key, statement),
            verify=self.believer.verify,
        )

    def renew(self, credentials: Credentials) -> None:
        """Go on under renewed credentials; attempts already open keep the certificate they showed."""
        self.credentials = credentials
        self.believer.renew(credentials)


def open_site(config: Config) -> LocalSite:
    """Load and check everything that the configuration names; the first thing wrong is raised as its sentence."""
    identity = config.identity
    credentials = load_credentials(
        identity.ca, identity.cert, identity.key, now=datetime.now(UTC), role=Role.PARTICIPANT
    )
    believer = Believer(credentials, identity.crl, KeptRevocationList.in_state(config.state.dir))
    matrix = open_matrix(config.data, config.state.dir / "spool", config.engine.memory_limit)
    meter = Meter(lambda percent: log("data_checked", path=config.data.origin, percent=percent))
    meter.begin(matrix.columns.shape[1])
    data = measure(MeteredColumns(matrix.columns, meter), config.data.origin)
    facts = SiteFacts(
        name=credentials.identity.name,
        rows=data.rows,
        columns=data.columns,
        has_missing=data.missing > 0,
        allows_missing=config.data.missing == "allow",
        policy=config.policy,
        features=matrix.features,
    )
    return LocalSite(credentials, believer, matrix, facts, data)
