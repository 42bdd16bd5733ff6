"""A lying aggregator, with conspirators, against honest sites of the fixed cohort, as a state machine.

It may show any site any roster, shares and opening that it can form of what it has, in any order, and sites may
restart. Invariant: every combination of what it received in which no unknown mask is left has, for each opening, one
and the same weight on every honest site's update. The masks are those of the running code: the keys that the sites
really used are recorded, each is one unknown unless a conspirator has it; combinations are found by elimination.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)

from dcfpca.secagg import masks as pair_roots
from dcfpca.secagg import messages as context
from dcfpca.secagg.errors import SecureSumRefusal
from dcfpca.secagg.fixed_point import FloatArray, RingArray, decode, from_ring, lifted
from dcfpca.secagg.messages import Advert, Masked, Misfit, Opening, Roster, SealedShare, consensus_digest
from dcfpca.secagg.site import Numbers, SecureSite
from dcfpca.secagg.state import Step
from tests.support.hostile.conspirator_roots import ConspiratorRoots
from tests.support.hostile.lying_scripts import play
from tests.support.hostile.mask_elimination import (
    check_one_answer_per_round_and_mask,
    check_only_whole_sums_are_free,
    recorded_masks,
)
from tests.support.runs.secagg import identity_of
from tests.support.runs.secure_relay import LAYOUT, begin, opening_of, terms_of

HONEST, CONSPIRING = 3, 2
TERMS = terms_of(HONEST + CONSPIRING, last_round=9)
HONEST_NAMES, CONSPIRATORS = TERMS.cohort[:HONEST], TERMS.cohort[HONEST:]
honest_names = st.sampled_from(HONEST_NAMES)
openings = st.builds(
    opening_of,
    st.integers(-1, 11),
    st.sampled_from([b"U", b"V"]),
    previous_sum=st.sampled_from([bytes(32), b"\x01" * 32]),
    exponents=st.sampled_from([(6, 20), (7, 20), (0, 20)]),
)


DIFFERENCES: list[dict[str, object]] = [
    {"consensus": consensus_digest(hashlib.sha256(b"W"))},
    {"round": 9},
    {"previous_sum": b"\x02" * 32},
    {"exponents": (8, 21)},
]


class HonestSite:
    """A daemon around a side: it saves the record and the numbers before anything leaves, and may restart."""

    def __init__(self, name: str) -> None:
        self.side = begin(TERMS, name)
        self.numbers = np.zeros(LAYOUT.size)
        self.computed = 0

    def restart(self) -> None:
        self.side = SecureSite.restore(TERMS, identity_of(self.side.name), self.side.record)

    def answer(self, opening: Opening) -> Masked | Misfit:
        if self.side.admit(opening) is Numbers.SAVED:
            return self.side.answer(opening, self.numbers)
        # Every computation gives other numbers, so that answering anew where the saved ones are due would show.
        self.computed += 1
        fresh = np.random.default_rng([self.computed, *self.side.name.encode()]).standard_normal(LAYOUT.size) * 2
        answered = self.side.answer(opening, fresh)
        self.numbers = fresh
        return answered


class Received:
    """One masked update as the aggregator sees it: whose, for which opening, with which keys and signs."""

    def __init__(self, masked: Masked, opening: Opening, used: dict[bytes, int], numbers: FloatArray) -> None:
        # Under all lifts of one opening a site masks the same numbers.
        self.opening = replace(opening, misfits=())
        self.name, self.masked, self.used, self.numbers = masked.name, masked, used, numbers.copy()
        self.values = masked.values.tobytes()


class SetUp(NamedTuple):
    """What a set-up leaves behind, at the sites and at the aggregator."""

    records: dict[str, bytes]
    rosters: dict[str, Roster]
    shares: list[SealedShare]
    known_keys: set[bytes]


class LyingAggregator(RuleBasedStateMachine):
    @initialize(properly=st.sampled_from([True, True, False]))
    def begin(self, properly: bool) -> None:
        self.sites = {name: HonestSite(name) for name in HONEST_NAMES}
        self.adverts: dict[str, list[Advert]] = {name: [site.side.advert()] for name, site in self.sites.items()}
        self.conspirators: dict[str, list[SecureSite]] = {}
        for name in CONSPIRATORS:
            self.conspirators[name] = [begin(TERMS, name, salt) for salt in ("", "another key")]
            self.adverts[name] = [side.advert() for side in self.conspirators[name]]
        self.rosters: dict[str, Roster] = {}
        self.shares: list[SealedShare] = []
        self.received: list[Received] = []
        self.misfits: list[Misfit] = []
        self.known_keys: set[bytes] = set()
        self.conspiracy = ConspiratorRoots(TERMS.last_round)
        if properly:
            self._resume(_proper_set_up())

    def _resume(self, done: SetUp) -> None:
        """Go on from a set-up that was carried out as it should."""
        for name, record in done.records.items():
            self.sites[name].side = SecureSite.restore(TERMS, identity_of(name), record)
        self.rosters, self.shares, self.known_keys = dict(done.rosters), list(done.shares), set(done.known_keys)

    def _attempt(self, name: str, act: Callable[[], object]) -> object | None:
        """What an honest site says, or None where it refuses, which must leave its record as it was."""
        before = self.sites[name].side.record
        try:
            return act()
        except SecureSumRefusal:
            assert self.sites[name].side.record == before
            return None

    @rule(name=honest_names, choice=st.lists(st.integers(0, 1), min_size=2, max_size=2), left_out=st.integers(0, 12))
    def show_a_roster(self, name: str, choice: list[int], left_out: int) -> None:
        chosen = {other: self.adverts[other][0] for other in HONEST_NAMES}
        chosen |= {other: self.adverts[other][pick] for other, pick in zip(CONSPIRATORS, choice, strict=True)}
        if left_out < len(TERMS.cohort):
            del chosen[TERMS.cohort[left_out]]
        roster = Roster(tuple(chosen[other] for other in sorted(chosen)))
        shares = self._attempt(name, lambda: self.sites[name].side.share(roster))
        if shares is not None:
            self.rosters[name] = roster
            self.shares += [share for share in shares if share not in self.shares]  # type: ignore[attr-defined]

    @rule(names=st.permutations(HONEST_NAMES), choice=st.lists(st.integers(0, 1), min_size=2, max_size=2))
    def show_everybody_the_same_roster(self, names: list[str], choice: list[int]) -> None:
        for name in names:
            self.show_a_roster(name, choice, 99)

    @rule(name=st.sampled_from(CONSPIRATORS), of=honest_names, pick=st.integers(0, 1))
    def let_a_conspirator_share(self, name: str, of: str, pick: int) -> None:
        """It adopts the roster that some site was shown, if one of its keys is in it; a clone of it knows the roots."""
        if of not in self.rosters:
            return
        clone = begin(TERMS, name, ("", "another key")[pick])
        try:
            shares = clone.share(self.rosters[of])
        except SecureSumRefusal:
            return
        self.shares += [share for share in shares if share not in self.shares]
        self.conspiracy.join(clone, self.rosters[of])

    @rule(name=honest_names, salt=st.randoms(use_true_random=False), fair=st.booleans())
    def relay_shares(self, name: str, salt: object, fair: bool) -> None:
        if name not in self.rosters:
            return
        candidates = [share for share in self.shares if share.receiver == name]
        if not fair:
            salt.shuffle(candidates)  # type: ignore[attr-defined]
            candidates = candidates[: salt.randint(0, len(candidates))]  # type: ignore[attr-defined]
        site = self.sites[name].side
        self._attempt(name, lambda: site.complete(self.rosters[name], candidates))

    @rule(pick=st.integers(0, 1))
    def set_up_properly(self, pick: int) -> None:
        self.show_everybody_the_same_roster(list(HONEST_NAMES), [pick, pick])
        for name in CONSPIRATORS:
            self.let_a_conspirator_share(name, HONEST_NAMES[0], pick)
        for name in HONEST_NAMES:
            self.relay_shares(name, None, True)

    @precondition(lambda self: any(site.side.state.step is Step.READY for site in self.sites.values()))
    @rule(name=honest_names, opening=openings, lifts=st.integers(0, 4))
    def open_a_round(self, name: str, opening: Opening, lifts: int) -> None:
        told = replace(opening, misfits=tuple(self.misfits[-lifts:] if lifts else ()))
        self._ask(name, told)

    @precondition(lambda self: all(site.side.state.step is Step.READY for site in self.sites.values()))
    @rule(opening=openings, names=st.permutations(HONEST_NAMES), told=st.integers(1, HONEST))
    def open_a_round_at_several(self, opening: Opening, names: list[str], told: int) -> None:
        for name in names[:told]:
            self._ask(name, opening)
        raised = [misfit for misfit in self.misfits[-1:] if misfit.name in names]
        for name in names[:told]:
            self._ask(name, replace(opening, misfits=tuple(raised)))

    @precondition(lambda self: all(site.side.state.step is Step.READY for site in self.sites.values()))
    @rule(base=openings, difference=st.sampled_from(DIFFERENCES), told=st.lists(st.booleans(), min_size=3, max_size=3))
    def tell_some_something_else(self, base: Opening, difference: dict[str, object], told: list[bool]) -> None:
        """In a round that is new to everybody."""
        after = 1 + max(site.side.state.round for site in self.sites.values())
        for name, differently in zip(HONEST_NAMES, told, strict=True):
            fair = replace(base, round=after)
            self._ask(name, replace(fair, **difference) if differently else fair)  # type: ignore[arg-type]

    def _ask(self, name: str, opening: Opening) -> None:
        site = self.sites[name]
        with recorded_masks() as used:
            answered = self._attempt(name, lambda: site.answer(opening))
        if isinstance(answered, Misfit):
            self.misfits.append(answered)
        if isinstance(answered, Masked):
            self._learn(site, opening, answered)
            self.received.append(Received(answered, opening, used, site.numbers))
            self._open_if_complete(opening, answered.context)

    def _learn(self, site: HonestSite, opening: Opening, masked: Masked) -> None:
        """Keys of this mask that the roots of a conspirator give."""
        self.conspiracy.learn(self.shares)
        self.known_keys |= self.conspiracy.known
        mine = {pair_roots.mask_key(root, masked.context): root for root in site.side.state.roots if any(root)}
        self.known_keys |= {key for key, root in mine.items() if root in self.known_keys}

    def _open_if_complete(self, opening: Opening, context: bytes) -> None:
        """All honest answers of one context, without the conspirators' masks, are their exact sum."""
        answers = {one.masked.name: one for one in self.received if one.masked.context == context}
        if len(answers) < HONEST:
            return
        tally: RingArray = np.add.reduce([one.masked.values for one in answers.values()])
        for one in answers.values():
            for key, sign in one.used.items():
                if key in self.known_keys:
                    pair_roots.mask_values(tally, key, *(("b", "a") if sign > 0 else ("a", "b")))
        exponents = lifted(opening.layout, opening.exponents, len(opening.misfits), 64)
        numbers = decode(from_ring(tally, 64), LAYOUT, exponents, len(TERMS.cohort), 64)
        step = 2.0 ** (max(exponents) + len(TERMS.cohort).bit_length() - 58)  # what fixed point resolves
        assert np.allclose(numbers, sum(one.numbers for one in answers.values()), atol=max(1e-9, 8.0 * step))

    @rule(name=honest_names)
    def restart(self, name: str) -> None:
        self.sites[name].restart()

    @precondition(lambda self: len(self.received) > 4 * HONEST)
    @rule(name=honest_names)
    def end_the_run(self, name: str) -> None:
        self.sites[name].side.finish()

    def teardown(self) -> None:
        """What the aggregator has only grows, so that a violation at any step is still one at the end."""
        check_only_whole_sums_are_free(self.received, self.known_keys, HONEST_NAMES)
        check_one_answer_per_round_and_mask(self.received)


@cache
def _proper_set_up() -> SetUp:
    machine = LyingAggregator()
    machine.begin(properly=False)
    machine.set_up_properly(0)
    records = {name: site.side.record for name, site in machine.sites.items()}
    machine.conspiracy.learn(machine.shares)
    return SetUp(records, machine.rosters, machine.shares, machine.conspiracy.known)


def test_a_lying_aggregator_with_conspirators_learns_sums_over_all_honest_sites_only() -> None:
    play(LyingAggregator, 60)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_scripts_of_a_lying_aggregator_open_nothing_else() -> None:
    play(LyingAggregator, 20_000 if os.environ.get("DCFPCA_LONG") else 1_000)


@pytest.mark.parametrize("blind_to", ["consensus", "round", "previous_sum"])
def test_the_invariant_fails_if_masks_were_not_bound_to_what_a_site_was_told(
    blind_to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest_digest = context.opening_digest
    one_for_all = {"consensus": bytes(32), "round": 0, "previous_sum": bytes(32)}[blind_to]

    def careless(terms: object, roster: bytes, opening: Opening) -> bytes:
        return honest_digest(terms, roster, replace(opening, **{blind_to: one_for_all}))  # type: ignore[arg-type]

    monkeypatch.setattr(context, "opening_digest", careless)
    monkeypatch.setattr(pair_roots, "ratchet", lambda root, rounds: root)
    with pytest.raises(AssertionError):
        play(LyingAggregator, 300, derandomize=True)


def test_the_invariant_fails_if_a_site_answered_a_round_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        HonestSite,
        "restart",
        lambda self: setattr(
            self.side, "state", replace(self.side.state, round=-1, update=bytes(32), opening=bytes(32))
        ),
    )
    monkeypatch.setattr(pair_roots, "ratchet", lambda root, rounds: root)
    with pytest.raises(AssertionError):
        play(LyingAggregator, 300, derandomize=True)
