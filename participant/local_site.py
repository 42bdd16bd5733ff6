"""The site: its data, name, policy and credentials."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography.hazmat.primitives.serialization import Encoding

from dcfpca import secagg
from dcfpca.identity import Role
from dcfpca.logs import log
from dcfpca.pki import Credentials, load_credentials, sign
from dcfpca.rpca.method import Columns
from dcfpca.spec import RunSpec
from participant.config import Config
from participant.data import DataFacts, Matrix, measure, open_matrix, without_empty_samples
from participant.data.matrix_parts import MatrixParts
from participant.engine.progress import MeteredColumns, ProgressMeter
from participant.peer_verifier import PeerVerifier
from participant.policy import SiteFacts
from participant.state.revocation_list import KeptRevocationList


@dataclass(slots=True)
class LocalSite:
    """The daemon's view of its own site; `credentials` may be renewed while it runs."""

    credentials: Credentials
    peer_verifier: PeerVerifier
    matrix: Matrix = field(repr=False)
    facts: SiteFacts
    data: DataFacts
    parts: MatrixParts = field(repr=False, init=False)

    def __post_init__(self) -> None:
        self.parts = MatrixParts(self.matrix, self.data.missing > 0)

    def columns(self, spec: RunSpec) -> Columns:
        """The local matrix, restricted to the features that the spec names, in the spec's order."""
        return self.part(spec).columns

    @property
    def orientation(self) -> str:
        """How the site's own file lies: samples-in-rows or features-in-rows."""
        return "samples-in-rows" if self.matrix.samples_in_rows else "features-in-rows"

    def part(self, spec: RunSpec) -> Matrix:
        """The features that the spec names, and the samples that have an entry in any of them."""
        return self.parts.part(spec.features, f"of {self.name}", may_lack=spec.missing_features == "allow")

    @property
    def name(self) -> str:
        """The participant's name, from its certificate."""
        return self.facts.name

    def sign(self, statement: bytes) -> bytes:
        """Sign with the identity key."""
        return sign(self.credentials.private_key, statement)

    def identity(self) -> secagg.SigningIdentity:
        """The identity that the secure sum signs and verifies with; certificate and key always belong together."""
        credentials = self.credentials
        certificate = credentials.certificate.public_bytes(Encoding.DER)
        return secagg.SigningIdentity(
            name=self.name,
            certificate=certificate,
            sign=lambda statement: sign(credentials.private_key, statement),
            verify=self.peer_verifier.verify,
        )

    def renew(self, credentials: Credentials) -> None:
        """Replace the credentials; attempts already open keep the certificate they advertised."""
        self.credentials = credentials
        self.peer_verifier.renew(credentials)


def open_site(config: Config) -> LocalSite:
    """Load and check everything that the configuration names; raises DcfpcaError at the first thing that is wrong."""
    identity = config.identity
    credentials = load_credentials(
        identity.ca, identity.cert, identity.key, now=datetime.now(UTC), role=Role.PARTICIPANT
    )
    peer_verifier = PeerVerifier(credentials, identity.crl, KeptRevocationList.in_state(config.state.dir))
    matrix = open_matrix(config.data, config.state.dir / "spool", config.engine.memory_limit)
    meter = ProgressMeter(lambda percent: log("data_checked", path=config.data.origin, percent=percent))
    meter.begin(matrix.columns.shape[1])
    data = measure(MeteredColumns(matrix.columns, meter), config.data.origin)
    matrix = without_empty_samples(matrix, data)
    facts = SiteFacts(
        name=credentials.identity.name,
        rows=data.rows,
        columns=data.columns,
        has_missing=data.missing > 0,
        allows_missing=config.data.missing == "allow",
        policy=config.policy,
        features=matrix.features,
        entries=data.entries,
    )
    return LocalSite(credentials, peer_verifier, matrix, facts, data)
