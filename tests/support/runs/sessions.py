"""A site's session of a plain run in tests: proposed, enrolled, opened, computed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dcfpca.rpca.method import FloatArray
from dcfpca.run_references import AttemptRef
from dcfpca.spec import RunSpec
from dcfpca.wire.tensors import FLOAT64
from participant.policy import SiteFacts, SitePolicy
from participant.session import Reaction, Session, actions, events
from participant.session.events import AnnouncedConsensus
from tests.support.runs.secagg import identity_of

SITES = ("a", "b", "c", "d")
CONSENSUS = AnnouncedConsensus("fit", FLOAT64, rows=6, columns=2, scalars=3, sha256=b"c" * 32)


def spec_of(**changes: Any) -> RunSpec:
    return RunSpec.model_validate({"rows": 6, "rank": 2, "aggregation": "plain"} | changes)


def site_of(name: str, **policy: Any) -> SiteFacts:
    return SiteFacts(name, 6, 9, False, False, SitePolicy(**({"allow_plain": True, "min_columns": 2} | policy)))


def session_of(name: str = "a", **policy: Any) -> Session:
    return Session("run-1", site_of(name, **policy), lambda: identity_of(name))


def enrolled(name: str = "a", spec: RunSpec | None = None, **policy: Any) -> Session:
    session = session_of(name, **policy)
    spec = spec or spec_of()
    (answer,) = session.handle(events.Proposed(spec.canonical(), spec.digest())).actions
    assert isinstance(answer, actions.Consent)
    assert answer.accept
    return session


def opened(spec: RunSpec, round: int = 1, attempt: int = 1, **changes: Any) -> events.Opened:
    made = events.Opened(AttemptRef("run-1", round, attempt), spec.digest(), SITES, CONSENSUS)
    return replace(made, **changes)


def kinds(reaction: Reaction) -> list[str]:
    return [type(action).__name__ for action in reaction.actions]


def update_of(name: str) -> FloatArray:
    return np.random.default_rng(SITES.index(name)).standard_normal(15)


def computed(name: str = "a", round: int = 1, attempt: int = 1) -> events.Answered:
    step = events.LocalStep(round, CONSENSUS.sha256, update_of(name))
    return events.Answered(step, AttemptRef("run-1", round, attempt))
