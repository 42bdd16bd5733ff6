"""A run of the fixed-cohort secure sum in memory: real certificates and signatures, and a relay as the aggregator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from dcfpca.secagg.aggregator import OpenedSum, accept_advert, accept_shares, shares_for
from dcfpca.secagg.fixed_point import Block, BlockLayout, FloatArray
from dcfpca.secagg.messages import (
    NO_SUM,
    Advert,
    Masked,
    Misfit,
    Opening,
    Roster,
    RunTerms,
    SealedShare,
    consensus_digest,
)
from dcfpca.secagg.set_up import roster_digest
from dcfpca.secagg.site import SecureSite
from tests.support.runs.masked_sums import begin_tally, close_roster
from tests.support.runs.secagg import identity_of, site_names, verify


def layout_of(size: int, exponent: int = 6) -> BlockLayout:
    """A tensor and a count."""
    return BlockLayout((Block("tensor", size - 1, exponent), Block("columns", 1, 20)))


LAYOUT = layout_of(5)


def terms_of(count: int, **changes: object) -> RunTerms:
    defaults: dict[str, object] = {"run": "run-1", "spec_digest": bytes(32), "cohort": site_names(count)}
    return RunTerms(**{**defaults, "last_round": 8, **changes})  # type: ignore[arg-type]


def entropy_of(terms: RunTerms, name: str, salt: str = "") -> bytes:
    return hashlib.sha512(terms.binding + name.encode() + salt.encode()).digest()


def begin(terms: RunTerms, name: str, salt: str = "") -> SecureSite:
    return SecureSite.begin(terms, identity_of(name), entropy_of(terms, name, salt))


def opening_of(round: int = 0, consensus: bytes = b"", layout: BlockLayout = LAYOUT, **changes: object) -> Opening:
    fields: dict[str, object] = {"previous_sum": NO_SUM, "exponents": layout.first_exponents}
    return Opening(round, consensus_digest(hashlib.sha256(consensus)), layout=layout, **{**fields, **changes})  # type: ignore[arg-type]


def random_updates(names: Iterable[str], size: int = 5, seed: int = 0) -> dict[str, FloatArray]:
    draw = np.random.default_rng(seed)
    return {name: draw.standard_normal(size) for name in names}


@dataclass
class Relay:
    """An aggregator that does what it should, step by step."""

    terms: RunTerms
    sides: dict[str, SecureSite] = field(default_factory=dict)
    adverts: dict[str, Advert] = field(default_factory=dict)
    shares: list[SealedShare] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sides = self.sides or {name: begin(self.terms, name) for name in self.terms.cohort}

    def advertise(self) -> Roster:
        for side in self.sides.values():
            advert = side.advert()
            accept_advert(self.terms, self.adverts, advert, verify)
            self.adverts[side.name] = advert
        self.roster = close_roster(self.terms, self.adverts, verify)
        return self.roster

    def share(self) -> None:
        digest = roster_digest(self.terms, self.roster)
        for name, side in self.sides.items():
            shares, key = side.share(self.roster), verify(self.adverts[name].certificate, name)
            accept_shares(digest, self.terms.cohort, name, key, shares)
            self.shares += shares

    def complete(self) -> None:
        for name, side in self.sides.items():
            side.complete(self.roster, shares_for(name, self.shares))

    def set_up(self) -> Relay:
        self.advertise()
        self.share()
        self.complete()
        return self

    def answers(self, opening: Opening, updates: Mapping[str, FloatArray]) -> list[Masked | Misfit]:
        return [self.sides[name].answer(opening, updates[name]) for name in self.terms.cohort]

    def opened(self, opening: Opening, updates: Mapping[str, FloatArray]) -> OpenedSum:
        tally = begin_tally(self.terms, self.roster, opening)
        for answer in self.answers(opening, updates):
            assert isinstance(answer, Masked)
            tally.add(answer)
        return tally.open(self.terms, opening)
