"""The site: its data, name, policy and credentials."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
from cryptography.hazmat.primitives.serialization import Encoding

from dcfpca.errors import BadInput
from dcfpca.identity import Role
from dcfpca.logs import log
from dcfpca.pki.credential_files import Credentials, load_credentials
from dcfpca.pki.keys import sign
from dcfpca.rpca.method import Columns
from dcfpca.secagg.column_sets import ColumnHasher, ColumnSet
from dcfpca.secagg.keys import SigningIdentity
from dcfpca.spec import RunSpec
from participant.config import Config
from participant.data.facts import DataFacts, MatrixParts, measure, without_empty_samples
from participant.data.matrix import Matrix
from participant.data.readers import open_matrix
from participant.data.source_state import SourceState
from participant.engine.progress import MeteredColumns, ProgressMeter
from participant.peer_verifier import KeptRevocationList, PeerVerifier
from participant.policy import SiteFacts
from participant.state.column_sets import column_key
from participant.state.privacy_budget import Unit


@dataclass(slots=True)
class LocalSite:
    """The daemon's view of its own site; `credentials` may be renewed while it runs."""

    credentials: Credentials
    peer_verifier: PeerVerifier
    matrix: Matrix = field(repr=False)
    facts: SiteFacts
    data: DataFacts
    column_set: ColumnSet = field(repr=False)
    source: SourceState = field(repr=False)
    key: bytes = field(repr=False)  # never leaves: it recognises columns, and draws the entries that a run hides
    parts: MatrixParts = field(repr=False, init=False)
    _identity: tuple[Credentials, SigningIdentity] | None = field(repr=False, init=False, default=None)

    def __post_init__(self) -> None:
        self.parts = MatrixParts(self.matrix, self.data.missing > 0)
        self.facts = replace(
            self.facts,
            used_columns=self.used_columns,
            columns_of=self.columns_of,
            id_at=lambda spec, place: self.part(spec).id_at(place),
        )

    def take_data(self, other: LocalSite) -> str:
        """Go on with data that was read again; returns in one line what differs, empty if nothing does."""
        said = _difference(self, other)
        self.matrix, self.data, self.column_set, self.source = other.matrix, other.data, other.column_set, other.source
        self.facts = other.facts
        self.__post_init__()
        return said

    def used_columns(self, spec: RunSpec) -> int:
        """How many columns enter the sums of a run with this spec."""
        try:
            return self.fitted_columns(spec).shape[1]
        except BadInput:  # the site lacks features that the spec names, and refuses it for that
            return self.data.columns

    def columns_of(self, spec: RunSpec) -> ColumnSet:
        """The columns that the sums of a run are about: those with an entry in its features. Under differential privacy
        all: which of a person's columns is used changes nothing about whom it is charged to."""
        if spec.privacy is not None or (used := self.part(spec)).columns.shape[1] == self.data.columns:
            return self.column_set
        assert used.samples is not None
        whole = self.matrix.samples
        return self.column_set.at(used.samples if whole is None else np.searchsorted(whole, used.samples))

    def columns(self, spec: RunSpec) -> Columns:
        """The local matrix, restricted to the features that the spec names, in the spec's order."""
        return self.part(spec).columns

    def fitted_columns(self, spec: RunSpec) -> Columns:
        """The columns that enter the sums of a run; under differential privacy one for each person."""
        if spec.privacy is None:
            return self.columns(spec)
        return self.parts.one_per_person(spec.features, f"of {self.name}").columns

    @property
    def orientation(self) -> str:
        """How the site's own file lies: samples-in-rows or features-in-rows."""
        return "samples-in-rows" if self.matrix.samples_in_rows else "features-in-rows"

    @property
    def unit(self) -> Unit:
        """What differential privacy protects here: one column, or all columns of one person."""
        return "person" if self.matrix.persons else "column"

    @property
    def pinned_digest(self) -> bytes:
        """Digest of all that decides a local step: the data in their order, and the person of each sample. An open run
        is pinned to it.

        A step of a private run has one noise; other sums under the same noise would reveal their difference.
        """
        named = json.dumps([self.matrix.features, self.matrix.persons]).encode()
        return hashlib.sha256(self.column_set.to_bytes() + named).digest()

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

    def identity(self) -> SigningIdentity:
        """The identity that the secure sum signs and verifies with; certificate and key always belong together."""
        credentials = self.credentials
        if self._identity is None or self._identity[0] is not credentials:
            identity = SigningIdentity(
                name=self.name,
                certificate=credentials.certificate.public_bytes(Encoding.DER),
                sign=lambda statement: sign(credentials.private_key, statement),
                verify=self.peer_verifier.verify,
            )
            self._identity = credentials, identity
        return self._identity[1]

    def renew(self, credentials: Credentials) -> None:
        """Replace the credentials; attempts already open keep the certificate they advertised."""
        self.credentials = credentials
        self.peer_verifier.renew(credentials)


def _difference(old: LocalSite, new: LocalSite) -> str:
    kept, said = int(np.isin(new.column_set.contents, old.column_set.contents).sum()), []
    if old.matrix.features != new.matrix.features or old.data.rows != new.data.rows:
        said.append(f"{new.data.rows} features instead of {old.data.rows}, or other names")
    gone, added = max(old.data.columns - kept, 0), max(new.data.columns - kept, 0)
    if gone or added:
        said.append(f"samples gone or changed: {gone}, new or changed: {added}")
    return "; ".join(said)


def open_site(config: Config, *, make_key: bool = True) -> LocalSite:
    """Load and check everything that the configuration names; raises DcfpcaError at the first thing that is wrong.

    Without `make_key` nothing is written, and a site that has no key yet recognises no columns of earlier runs.
    """
    identity = config.identity
    credentials = load_credentials(
        identity.ca, identity.cert, identity.key, now=datetime.now(UTC), role=Role.PARTICIPANT
    )
    peer_verifier = PeerVerifier(credentials, identity.crl, KeptRevocationList.in_state(config.state.dir))
    source = SourceState.of(config.data)  # before it is read: what changes meanwhile is read again
    matrix = open_matrix(config.data, config.state.dir / "spool", config.engine.memory_limit)
    meter = ProgressMeter(lambda percent: log("data_checked", path=config.data.origin, percent=percent))
    meter.begin(matrix.columns.shape[1])
    key = column_key(config.state.dir, make=make_key)
    hasher = ColumnHasher(key, matrix.features)
    data = measure(MeteredColumns(matrix.columns, meter), config.data.origin, hasher)
    matrix = without_empty_samples(matrix, data)
    columns = hasher.columns(data.empty, matrix.persons or matrix.ids)
    facts = SiteFacts(
        name=credentials.identity.name,
        rows=data.rows,
        columns=data.columns,
        has_missing=data.missing > 0,
        allows_missing=config.data.missing == "allow",
        policy=config.policy,
        features=matrix.features,
        entries=data.entries,
        memory_limit=config.engine.memory_limit,
    )
    return LocalSite(credentials, peer_verifier, matrix, facts, data, columns, source, key)
