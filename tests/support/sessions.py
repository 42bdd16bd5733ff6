"""A site's session in tests: enrolled, opened, and a cohort of them joined without network, disk or clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dcfpca import secagg
from dcfpca.attempt_ref import AttemptRef
from dcfpca.rpca.method import FloatArray
from dcfpca.spec import RunSpec
from dcfpca.v1 import types_pb2 as types
from participant.policy import SiteFacts, SitePolicy
from participant.session import Reaction, Session, actions, events
from participant.session.events import AnnouncedConsensus
from tests.support.secagg import identity_of, verify

SITES = ("a", "b", "c", "d")
CONSENSUS = AnnouncedConsensus(
    types.TensorHeader(dtype=types.DTYPE_FLOAT64, rows=6, columns=2, scalars=3, sha256=b"c" * 32)
)


def spec_of(**changes: Any) -> RunSpec:
    return RunSpec.model_validate({"rows": 6, "rank": 2, "aggregation": "secure", "dropouts": "go-on"} | changes)


def site_of(name: str, **policy: Any) -> SiteFacts:
    return SiteFacts(name, 6, 9, False, False, SitePolicy(**({"allow_dropouts": True} | policy)))


def session_of(name: str = "a", **policy: Any) -> Session:
    return Session("run-1", site_of(name, **policy), lambda: identity_of(name))


def enrolled(name: str = "a", spec: RunSpec | None = None, **policy: Any) -> Session:
    session = session_of(name, **policy)
    spec = spec or spec_of()
    (answer,) = session.handle(events.Proposed(spec.canonical(), spec.digest())).actions
    assert isinstance(answer, actions.Respond)
    assert answer.accept
    return session


def opened(spec: RunSpec, round: int = 1, attempt: int = 1, seed: bytes = b"s" * 32, **changes: Any) -> events.Opened:
    made = events.Opened(AttemptRef("run-1", round, attempt), spec.digest(), SITES, CONSENSUS, seed)
    return replace(made, **changes)


def kinds(reaction: Reaction) -> list[str]:
    return [type(action).__name__ for action in reaction.actions]


def update_of(name: str) -> FloatArray:
    return np.random.default_rng(SITES.index(name)).standard_normal(15)


def computed(name: str = "a", round: int = 1) -> events.Computed:
    return events.Computed(round, CONSENSUS.sha256, update_of(name))


@dataclass
class Cohort:
    """Sessions of all sites in one secure attempt, with the aggregator's half of the secure sum as their relay."""

    spec: RunSpec = field(default_factory=spec_of)
    sessions: dict[str, Session] = field(default_factory=dict)
    said: dict[str, list[events.Event]] = field(default_factory=lambda: {name: [] for name in SITES})
    opened_before: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.sessions = {name: enrolled(name, self.spec) for name in SITES}
        self.context = secagg.Context(
            "run-1", self.spec.digest(), 1, 1, SITES, self.spec.threshold_of(4), consensus=CONSENSUS.sha256
        )

    def tell(self, name: str, event: events.Event) -> tuple[actions.Action, ...]:
        reaction = self.sessions[name].handle(event)
        self.said[name].append(event)
        return reaction.actions

    def open(self) -> None:
        adverts = []
        for name in SITES:
            opening = opened(self.spec, seed=name.encode() * 32, opened_before=self.opened_before)
            compute, advertise = self.tell(name, opening)
            assert isinstance(compute, actions.Compute)
            assert isinstance(advertise, actions.Advertise)
            secagg.accept_advert(self.context, advertise.advert, verify)
            adverts.append(advertise.advert)
        self.closed = secagg.close_roster(self.context, adverts)

    def share(self) -> None:
        self.shares: dict[str, tuple[secagg.SealedShare, ...]] = {}
        bounds = {}
        for name in SITES:
            (send,) = self.tell(
                name, events.RosterRelayed(AttemptRef("run-1", 1, 1), secagg.roster_for(self.closed, name))
            )
            assert isinstance(send, actions.SendShares)
            self.shares[name] = send.shares
            (bound,) = self.tell(name, computed(name))
            assert isinstance(bound, actions.SendBound)
            bounds[name] = bound.bound.exponent
        self.agreement = secagg.agree(self.closed, SITES, bounds)

    def delivery(self, name: str) -> events.MaskWanted:
        sealed = [share for shares in self.shares.values() for share in shares]
        return events.MaskWanted(AttemptRef("run-1", 1, 1), secagg.delivery_for(self.agreement, name, sealed))

    def submit(self) -> None:
        self.total = np.zeros(15, dtype=np.uint64)
        for name in SITES:
            (submit,) = self.tell(name, self.delivery(name))
            assert submit == actions.Submit(AttemptRef("run-1", 1, 1))
            self.total += np.frombuffer(self.sessions[name].update_bytes(AttemptRef("run-1", 1, 1)), dtype="<u8")

    def unmask(self, survivors: Sequence[str] = SITES) -> FloatArray:
        told = secagg.close_survivors(self.closed, self.agreement, survivors)
        attested = {}
        for name in SITES:
            (attest,) = self.tell(name, events.SurvivorsAnnounced(AttemptRef("run-1", 1, 1), told))
            assert isinstance(attest, actions.Attest)
            attested[name] = attest.attestation
        reveals = []
        for name in SITES:
            request = secagg.request_for(self.closed, told, name, attested)
            (reveal,) = self.tell(name, events.UnmaskWanted(AttemptRef("run-1", 1, 1), request))
            assert isinstance(reveal, actions.SendReveal)
            reveals.append(reveal.reveal)
        secagg.remove_masks(self.total, secagg.recover(self.closed, self.agreement, told, reveals))
        return secagg.open_sum(self.context, self.agreement, self.total)
