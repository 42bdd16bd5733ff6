"""Aggregator and sessions of a plain run joined by a network that drops, delays, duplicates and reorders;
anybody crashes at any moment.

At every moment: at most one consensus per round, never below quorum, each the survivors' own sum, replay equal to the
live state, never two different messages of a kind in one attempt. And once the faults end, the run finishes.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from aggregator.run import events
from aggregator.run.state import Status
from dcfpca.run_references import AttemptRef
from dcfpca.spec import RunSpec, parse_spec
from dcfpca.v1 import rounds_pb2 as pb
from tests.support.runs.simulated_aggregator import SimulatedAggregator
from tests.support.runs.simulated_site import SimulatedSite

NAMES = ("ann", "bob", "cem", "dag")
ROWS = 3
CLOSING = 2  # of method gradient: one round predicts the hidden entries, one gives the null
Fault = tuple[int, int, int]


def spec_of(**keys: Any) -> RunSpec:
    return parse_spec(
        {"rows": ROWS, "rank": 1, "rounds": 2, "tolerance": 0, "method": "gradient", "participants": NAMES}
        | {"quorum": 3, "max_attempts": 3, "aggregation": "plain", "closing_rounds": False}
        | keys
    )


class World:
    """Everybody, and what is on the wire to each participant."""

    def __init__(self, spec: RunSpec) -> None:
        draw = np.random.default_rng(1)
        self.aggregator = SimulatedAggregator(spec)
        self.sites = [SimulatedSite(name, spec, draw.standard_normal((ROWS, 2))) for name in NAMES]
        self.wire: dict[str, list[pb.Assignment]] = {name: [] for name in NAMES}
        self.connected: set[str] = set()
        self.backups = [self.aggregator.back_up()]

    def listen(self, site: SimulatedSite) -> list[pb.Assignment]:
        """What the aggregator tells this site now; it connects first where it has to."""
        if site.name not in self.connected:
            self.connected.add(site.name)
            self.aggregator.greet(site.name, site.session.opened)
        return self.aggregator.wanted_of(site.name)

    def fault(self, what: int, who: int, which: int) -> None:
        """One thing happens; whatever is impossible now does not."""
        site, aggregator = self.sites[who % len(self.sites)], self.aggregator
        wire, here = self.wire[site.name], aggregator.run.attempt
        match what:
            case 0 | 1:
                wire += self.listen(site)
            case 2 | 3 if wire:
                site.hear(wire.pop(which % len(wire)))
            case 4 if wire:
                site.hear(wire[which % len(wire)])
            case 5:
                wire.clear()
            case 6 | 7 if site.outbox:
                site.send(which, aggregator, answered=True)
            case 8 if site.outbox:
                site.send(which, aggregator, answered=False)
            case 9:
                site.compute()
            case 10:
                site.crash()
                self.connected.discard(site.name)
            case 11:
                aggregator.crash()
                self.connected.clear()
            case 12:
                self.sum()
            case 13 if here is not None:
                aggregator.tell(events.DeadlinePassed(at=aggregator.clock, ref=here.ref, phase=here.phase.value))
            case 14 if here is not None:
                aggregator.tell(events.Left(at=aggregator.clock, participant=site.name))
            case 15 if here is not None:
                aggregator.tell(events.Joined(at=aggregator.clock, participant=site.name))
            case 16:
                aggregator.tell(events.Resumed(at=aggregator.clock))
            case 17:
                self.backups.append(aggregator.back_up())
            case 18:
                self.restore(which)
        self.check()

    def restore(self, which: int) -> None:
        """The aggregator comes back from one of its backups; streams are broken, calls are made again."""
        self.aggregator.restore(self.backups[-1 - which % len(self.backups)])
        self.connected.clear()
        for wire in self.wire.values():
            wire.clear()

    def sum(self) -> None:
        vectors = {(site.name, *asked): vector for site in self.sites for asked, vector in site.vectors.items()}
        self.aggregator.sum(vectors)

    def check(self) -> None:
        """What holds at every moment."""
        rounds = [done.round for done in self.aggregator.reached]
        assert rounds == sorted(set(rounds)), "two consensuses for one round"
        quorum = self.aggregator.spec.quorum_of(len(NAMES))
        assert all(len(done.survivors) >= quorum for done in self.aggregator.reached)

    def calm(self) -> None:
        """No more faults: everybody is there and answers. The run must come to its end."""
        for who in range(len(self.sites)):
            self.fault(15, who, 0)
        for _ in range(400):
            if self.aggregator.run.status.over and all(site.disk.finished for site in self.sites):
                return
            if not self.calm_turn():
                self.fault(13, 0, 0)
                self.fault(16, 0, 0)
        raise AssertionError(f"the run hangs: {self.aggregator.run}")

    def calm_turn(self) -> bool:
        """Everything that can be done is; whether anything was."""
        before = (self.aggregator.run, [(len(site.outbox), site.disk.finished) for site in self.sites])
        for site in self.sites:
            self.wire[site.name] = self.listen(site)
            while self.wire[site.name]:
                site.hear(self.wire[site.name].pop(0))
            site.compute()
            for _ in range(len(site.outbox)):
                if site.outbox:
                    site.send(0, self.aggregator, answered=True)
        self.sum()
        self.check()
        return before != (self.aggregator.run, [(len(site.outbox), site.disk.finished) for site in self.sites])


def play(spec: RunSpec, faults: list[Fault]) -> World:
    world = World(spec)
    for fault in faults:
        world.fault(*fault)
    world.calm()
    assert world.aggregator.run.status is Status.FINISHED
    assert world.aggregator.replayed() == world.aggregator.run
    last = spec.rounds + (CLOSING if spec.closing_rounds else 0)
    assert [done.round for done in world.aggregator.reached] == list(range(last + 1))
    return world


# Mostly things that move the run on, so that faults meet it in every phase.
_WHAT = st.sampled_from([0, 1, 2, 2, 2, 3, 3, 4, 5, 6, 6, 6, 7, 7, 8, 9, 9, 10, 11, 12, 12, 13, 14, 15, 16])
FAULTS = st.lists(st.tuples(_WHAT, st.integers(0, 3), st.integers(0, 5)), max_size=200)
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def test_without_faults_everybody_is_in_every_sum() -> None:
    world = play(spec_of(closing_rounds=True), [])
    assert all(done.survivors == NAMES for done in world.aggregator.reached)
    assert all(done.attempt == 1 for done in world.aggregator.reached)


@settings(max_examples=10, deadline=None, suppress_health_check=_QUIET)
@given(FAULTS)
def test_a_plain_run_survives_whatever_happens(faults: list[Fault]) -> None:
    play(spec_of(closing_rounds=True), faults)


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=_QUIET)
@given(FAULTS)
def test_more_scripts_of_what_happens_to_a_plain_run_are_survived_too(faults: list[Fault]) -> None:
    play(spec_of(closing_rounds=True), faults)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=_QUIET)
@given(FAULTS, FAULTS)
def test_longer_trouble_is_survived_too(faults: list[Fault], more: list[Fault]) -> None:
    play(spec_of(rounds=1), faults + more)


@pytest.mark.slow
@pytest.mark.parametrize("every", [3, 5, 7])
def test_crashes_all_along_the_way_leave_no_trace(every: int) -> None:
    """The usual order of things, with one party after the other crashing every few steps of it."""
    world, steps = World(spec_of(rounds=1, quorum=4)), 0
    for _ in range(200):
        if world.aggregator.run.status is Status.FINISHED and all(site.disk.finished for site in world.sites):
            break
        for who in range(len(NAMES)):
            for what in (0, 2, 2, 9, 6, 6, 12):
                world.fault(what, who, 0)
                steps += 1
                if steps % every == 0:
                    victim = steps // every % 5
                    world.fault(11 if victim == 4 else 10, victim, 0)
    assert world.aggregator.run.status is Status.FINISHED
    assert all(done.survivors == NAMES for done in world.aggregator.reached)
    assert all(done.attempt == 1 for done in world.aggregator.reached)


# As above, with backups made and restored at any time.
_WHAT_ELSE = st.sampled_from([0, 1, 2, 2, 2, 3, 3, 6, 6, 6, 7, 7, 8, 9, 9, 10, 11, 12, 12, 13, 15, 17, 17, 18])
RESTORES = st.lists(st.tuples(_WHAT_ELSE, st.integers(0, 3), st.integers(0, 5)), max_size=250)


def restored(spec: RunSpec, faults: list[Fault]) -> World:
    """Whatever backup is restored when, the run ends, and no site is asked for a thing twice (which sites check)."""
    world = World(spec)
    for fault in faults:
        world.fault(*fault)
    world.calm()
    run = world.aggregator.run
    assert world.aggregator.replayed() == run
    if run.status is Status.FAILED:
        # Only where there is nothing to go on from: no consensus yet, or sites that have their results.
        assert "propose the run again" in run.reason or "the run is over at this site" in run.reason, run.reason
    else:
        assert run.status is Status.FINISHED
    return world


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=_QUIET)
@given(RESTORES)
def test_a_plain_run_goes_on_from_any_backup(faults: list[Fault]) -> None:
    restored(spec_of(rounds=5), faults)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=_QUIET)
@given(RESTORES, RESTORES)
def test_backups_restored_again_and_again_are_survived_too(faults: list[Fault], more: list[Fault]) -> None:
    restored(spec_of(rounds=4), faults + more)


def test_a_run_set_back_three_rounds_goes_on_beyond_its_sites() -> None:
    """The usual order of things; a backup of round 2 is restored when the sites are in round 5."""
    world = World(spec_of(rounds=12, quorum=4))
    while (here := world.aggregator.run.attempt) is None or here.ref.round < 2:
        world.calm_turn()
    world.fault(17, 0, 0)
    while world.aggregator.run.attempt is not None and world.aggregator.run.attempt.ref.round < 5:
        world.calm_turn()
    ahead = max(site.session.opened.ref.round for site in world.sites if site.session.opened)
    world.fault(18, 0, 0)
    world.calm()
    rounds = [done.round for done in world.aggregator.reached]
    assert rounds == [0, 1, *range(ahead + 1, 13)]
    assert world.aggregator.run.status is Status.FINISHED


def test_a_run_set_back_from_its_closing_rounds_ends_within_the_rounds_that_sites_agreed_to() -> None:
    """Its fit is over at the next sum, and fewer rounds are left than the closing ones may take."""
    spec = spec_of(method="subspace", rounds=8, closing_rounds=True, quorum=4)
    world = World(spec)
    while (here := world.aggregator.run.attempt) is None or here.ref.round < 4:
        world.calm_turn()
    shown = AttemptRef("r1", spec.last_round - 3, 1)
    world.aggregator.tell(events.NewerAttemptShown(at=1.0, participant="ann", ref=shown, same_consensus=False))
    world.calm()
    rounds = [done.round for done in world.aggregator.reached]
    assert rounds == [0, 1, 2, 3, *range(shown.round + 1, spec.last_round + 1)]
    assert world.aggregator.run.status is Status.FINISHED
