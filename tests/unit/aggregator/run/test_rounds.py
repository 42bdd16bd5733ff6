"""Rounds: phases, quorum, deadlines, attempts, and the fate of every message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aggregator.run import events
from aggregator.run.effects import Accumulate, Discard, Sum
from aggregator.run.phases import awaited, deadline
from dcfpca.attempt_ref import AttemptRef
from dcfpca.message_fate import Fate
from dcfpca.secagg import Reveal
from tests.support.rules import NAMES, Machine, advert_of, on_to, reveal_of, secure_until, spec_of

PHASES = ("advertising", "sharing", "uploading", "attesting", "unmasking")
MESSAGES: list[tuple[str, type[Any], dict[str, Any]]] = [
    ("advertising", events.KeysAdvertised, {"advert": advert_of}),
    ("sharing", events.SharesSent, {"shares": {"x": b"y"}}),
    ("sharing", events.BoundStated, {"exponent": 3}),
    ("uploading", events.UpdateReceived, {"sha256": b"d" * 32, "size": 8}),
    ("attesting", events.SurvivorsAttested, {"signature": b"s"}),
    ("unmasking", events.SharesRevealed, {"reveal": reveal_of}),
]


def running(**keys: Any) -> Machine:
    return Machine(spec_of(**keys)).enrol(*NAMES)


def test_a_plain_round_sums_when_everybody_has_uploaded() -> None:
    machine = running().upload("ann", "bob", "cem")
    assert machine.place == ("running", 0, 1, "uploading")
    machine.upload("dag")
    assert machine.place == ("running", 0, 1, "summing")
    assert machine.effects[1:] == (Accumulate(AttemptRef("r1", 0, 1), "dag", b"d" * 32), Sum(AttemptRef("r1", 0, 1)))
    assert machine.run.attempt is not None
    assert machine.run.attempt.survivors == NAMES


def test_a_consensus_opens_the_next_round() -> None:
    machine = running().upload().reach()
    assert machine.place == ("running", 1, 1, "uploading")
    assert machine.effects == (Discard(AttemptRef("r1", 0, 1)),)


def test_an_outcome_ends_the_run() -> None:
    machine = running().upload().reach("converged")
    assert (machine.run.status.value, machine.run.reason) == ("finished", "converged")


def test_no_second_consensus_for_a_round() -> None:
    machine = running().upload().reach()
    before = machine.run
    machine.tell(events.ConsensusReached, round=0, attempt=1, outcome="")
    assert machine.run is before
    assert machine.effects == ()


def test_no_consensus_while_updates_are_still_awaited() -> None:
    machine = running().upload("ann")
    before = machine.run
    assert machine.reach("converged").run is before


def test_a_secure_round_goes_through_its_phases_in_order() -> None:
    seen = [secure_until(phase).run.phase for phase in PHASES]
    assert tuple(seen) == PHASES
    machine = secure_until("unmasking")
    machine.all_say(events.SharesRevealed, NAMES[:3], reveal=reveal_of)
    assert machine.run.phase == "summing"


def test_the_common_exponent_is_the_largest() -> None:
    machine = secure_until("sharing").all_say(events.SharesSent, shares={"x": b"y"})
    for who, exponent in zip(NAMES, (-4, 9, 3, 0), strict=True):
        machine.say(events.BoundStated, who, exponent=exponent)
    assert machine.run.attempt is not None
    assert machine.run.attempt.exponent == 9


def test_sharing_needs_both_shares_and_bound() -> None:
    machine = secure_until("sharing").all_say(events.SharesSent, shares={"x": b"y"})
    assert machine.run.phase == "sharing"
    assert awaited(machine.run) == NAMES


@pytest.mark.parametrize(("phase", "kind", "fields"), MESSAGES)
def test_a_repeat_is_a_duplicate_and_changes_nothing(phase: str, kind: type[Any], fields: dict[str, Any]) -> None:
    machine = secure_until(phase)
    assert machine.say(kind, "ann", **fields).fate is Fate.ACCEPTED
    before = machine.run
    assert machine.say(kind, "ann", **fields).fate is Fate.DUPLICATE
    assert machine.run is before


@pytest.mark.parametrize(("phase", "kind", "fields"), MESSAGES)
def test_a_repeat_stays_a_duplicate_when_the_phase_has_moved_on(
    phase: str, kind: type[Any], fields: dict[str, Any]
) -> None:
    machine = secure_until("unmasking")
    machine.all_say(events.SharesRevealed, NAMES[:3], reveal=reveal_of)
    assert machine.run.phase == "summing"
    assert machine.say(kind, "ann", **fields).fate is Fate.DUPLICATE


@pytest.mark.parametrize(
    ("phase", "kind", "other"),
    [
        ("advertising", events.KeysAdvertised, {"advert": advert_of("ann", "other")}),
        ("sharing", events.SharesSent, {"shares": {"x": b"other"}}),
        ("sharing", events.BoundStated, {"exponent": 4}),
        ("uploading", events.UpdateReceived, {"sha256": b"o" * 32, "size": 8}),
        ("attesting", events.SurvivorsAttested, {"signature": b"other"}),
        ("unmasking", events.SharesRevealed, {"reveal": Reveal("ann", (), ())}),
    ],
)
def test_a_second_different_message_is_rejected(phase: str, kind: type[Any], other: dict[str, Any]) -> None:
    machine = secure_until(phase)
    fields = next(fields for _, this, fields in MESSAGES if this is kind)
    machine.say(kind, "ann", **fields)
    before = machine.run
    assert machine.say(kind, "ann", **other).fate is Fate.REJECTED
    assert machine.run is before


@pytest.mark.parametrize(
    ("phase", "kind", "fields", "now"),
    [(*message, now) for message in MESSAGES for now in PHASES if PHASES.index(message[0]) > PHASES.index(now)],
)
def test_a_message_of_a_phase_to_come_is_rejected(
    phase: str, kind: type[Any], fields: dict[str, Any], now: str
) -> None:
    machine = secure_until(now)
    before = machine.run
    assert machine.say(kind, "ann", **fields).fate is Fate.REJECTED
    assert machine.run is before


def test_one_who_missed_a_phase_is_late_for_it_and_for_those_after() -> None:
    machine = secure_until("sharing")
    for who in NAMES[:3]:
        machine.say(events.SharesSent, who, shares={"x": b"y"})
        machine.say(events.BoundStated, who, exponent=1)
    machine.overdue()
    assert machine.run.phase == "uploading"
    assert machine.say(events.SharesSent, "dag", shares={"x": b"y"}).fate is Fate.LATE
    assert machine.say(events.UpdateReceived, "dag", sha256=b"d" * 32, size=8).fate is Fate.LATE


@pytest.mark.parametrize(("phase", "kind", "fields"), MESSAGES)
def test_a_message_of_an_earlier_attempt_is_late_and_of_a_later_one_rejected(
    phase: str, kind: type[Any], fields: dict[str, Any]
) -> None:
    machine = secure_until(phase).overdue()
    assert machine.place[2] == 2
    before = machine.run
    assert machine.say(kind, "ann", **fields | {"attempt": 1}).fate is Fate.LATE
    assert machine.say(kind, "ann", **fields | {"attempt": 3}).fate is Fate.REJECTED
    assert machine.say(kind, "ann", **fields | {"round": 1}).fate is Fate.REJECTED
    assert machine.run.attempt is before.attempt


@pytest.mark.parametrize(("phase", "kind", "fields"), MESSAGES)
def test_a_stranger_is_rejected_in_every_phase(phase: str, kind: type[Any], fields: dict[str, Any]) -> None:
    machine = secure_until(phase)
    before = machine.run
    assert machine.say(kind, "eve", **fields).fate is Fate.REJECTED
    assert machine.run is before


def test_no_consensus_below_quorum() -> None:
    machine = running(quorum=3).upload("ann", "bob").overdue()
    assert machine.place == ("running", 0, 2, "uploading")
    assert machine.effects == (Discard(AttemptRef("r1", 0, 1)),)
    assert "2 of the 3 needed" in machine.run.reason
    assert machine.run.attempt is not None
    assert not machine.run.attempt.updates


def test_at_the_deadline_a_quorum_goes_on_without_the_others() -> None:
    machine = running(quorum=3).upload("ann", "bob", "cem").overdue()
    assert machine.place[3] == "summing"
    assert machine.run.attempt is not None
    assert machine.run.attempt.survivors == ("ann", "bob", "cem")


def test_one_who_missed_a_deadline_is_not_waited_for_in_the_next_round() -> None:
    machine = running(quorum=3).upload("ann", "bob", "cem").overdue().reach()
    assert machine.run.silent == {"dag"}
    machine.upload("ann", "bob", "cem")
    assert machine.place == ("running", 1, 1, "summing")


def test_one_who_speaks_again_is_waited_for_again() -> None:
    machine = running(quorum=3).upload("ann", "bob", "cem").overdue().reach()
    assert machine.say(events.UpdateReceived, "dag", round=0, attempt=1, sha256=b"z" * 32, size=8).fate is Fate.LATE
    machine.upload("ann", "bob", "cem")
    assert awaited(machine.run) == ("dag",)


def test_one_who_speaks_out_of_turn_is_not_waited_for_again() -> None:
    machine = running(quorum=3).upload("ann", "bob", "cem").overdue().reach()
    before = machine.run
    assert machine.say(events.UpdateReceived, "dag", round=7, sha256=b"z" * 32, size=8).fate is Fate.REJECTED
    assert machine.run is before


def test_one_who_left_is_not_waited_for_and_may_still_answer() -> None:
    machine = running().upload("ann", "bob").tell(events.Left, participant="dag").tell(events.Left, participant="cem")
    assert machine.place[3] == "uploading", "two of four are no majority"
    assert machine.say(events.UpdateReceived, "cem", sha256=b"d" * 32, size=8).fate is Fate.ACCEPTED
    assert machine.place[3] == "summing"


def test_leaving_completes_a_phase_that_waited_for_nobody_else() -> None:
    machine = running().upload("ann", "bob", "cem").tell(events.Left, participant="dag")
    assert machine.place[3] == "summing"
    assert Sum(AttemptRef("r1", 0, 1)) in machine.effects


def test_one_who_comes_back_is_waited_for() -> None:
    machine = running().tell(events.Left, participant="dag").tell(events.Joined, participant="dag")
    machine.upload("ann", "bob", "cem")
    assert awaited(machine.run) == ("dag",)


def test_joining_without_having_left_changes_nothing() -> None:
    machine = running()
    before = machine.run
    assert machine.tell(events.Joined, participant="dag").run is before


def test_a_round_is_tried_again_then_pauses_with_the_reason() -> None:
    machine = running(max_attempts=2).overdue()
    assert machine.place == ("running", 0, 2, "uploading")
    machine.overdue()
    assert machine.place[0] == "paused"
    assert machine.run.reason.startswith("round 0 failed in 2 attempts: 0 of the 3 needed answered while uploading")
    assert "ann" in machine.run.reason
    assert machine.effects == (Discard(AttemptRef("r1", 0, 2)),)


def test_nothing_is_taken_while_paused() -> None:
    machine = running(max_attempts=1).overdue()
    assert machine.say(events.UpdateReceived, "ann", sha256=b"d" * 32, size=8).fate is Fate.LATE
    assert deadline(machine.spec, machine.run) is None


def test_a_resumed_run_takes_up_the_same_round_with_new_attempts() -> None:
    machine = running(max_attempts=2).upload().reach().overdue().overdue().tell(events.Resumed)
    assert machine.place == ("running", 1, 3, "uploading")
    assert machine.run.silent == frozenset()
    machine.overdue()
    assert machine.place == ("running", 1, 4, "uploading"), "the count of attempts began anew"


@pytest.mark.parametrize("kind", [events.Resumed])
def test_resuming_what_is_not_paused_changes_nothing(kind: type[Any]) -> None:
    machine = running()
    before = machine.run
    assert machine.tell(kind).run is before


def test_a_deadline_of_a_phase_that_is_over_changes_nothing() -> None:
    machine = running().upload().reach()
    before = machine.run
    machine.tell(events.DeadlinePassed, round=0, attempt=1, phase="uploading")
    machine.tell(events.DeadlinePassed, round=1, attempt=1, phase="advertising")
    assert machine.run is before


@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_ends_within_the_rounds_one_deadline(phase: str) -> None:
    machine = secure_until(phase)
    due = deadline(machine.spec, machine.run)
    assert due is not None
    assert 0 < due <= machine.spec.round_seconds


@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_below_its_need_is_reopened_with_fresh_state(phase: str) -> None:
    machine = secure_until(phase).overdue()
    assert machine.place == ("running", 0, 2, "advertising")
    here = machine.run.attempt
    assert here is not None
    held = (here.adverts, here.shares, here.bounds, here.updates, here.attestations, here.reveals)
    assert not any(held)
    assert (here.roster, here.members, here.survivors) == ((), (), ())


def test_a_secure_dropout_before_uploading_leaves_the_survivors() -> None:
    machine = secure_until("uploading").upload("ann", "bob", "cem").overdue()
    assert machine.run.phase == "attesting"
    assert machine.run.attempt is not None
    assert machine.run.attempt.survivors == ("ann", "bob", "cem")
    assert machine.say(events.SurvivorsAttested, "dag", signature=b"s").fate is Fate.LATE


def test_an_unusable_sum_reopens_and_a_fatal_one_fails() -> None:
    machine = running().upload().tell(events.SumFailed, round=0, attempt=1, reason="masks do not fit")
    assert machine.place == ("running", 0, 2, "uploading")
    machine.upload().tell(events.SumFailed, round=0, attempt=2, reason="diverged", fatal=True)
    assert (machine.run.status.value, machine.run.reason) == ("failed", "diverged")


@pytest.mark.parametrize("stage", ["enrolling", "running", "paused"])
def test_an_operator_can_abort_whatever_is_not_over(stage: str) -> None:
    machine = Machine(spec_of(max_attempts=1))
    if stage != "enrolling":
        machine.enrol(*NAMES)
    if stage == "paused":
        machine.overdue()
    machine.tell(events.Aborted, reason="enough")
    assert (machine.run.status.value, machine.run.reason) == ("aborted", "enough")
    before = machine.run
    assert machine.tell(events.Aborted, reason="again").run is before


def test_a_run_that_is_over_takes_nothing_any_more() -> None:
    machine = running().upload().reach("converged")
    before = machine.run
    assert machine.say(events.UpdateReceived, "ann", sha256=b"d" * 32, size=8).fate is Fate.LATE
    machine.tell(events.Left, participant="ann").tell(events.Resumed).tell(events.Aborted, reason="x")
    assert (machine.run.status, machine.run.attempt) == (before.status, before.attempt)


def test_keys_and_shares_of_the_last_attempt_are_forgotten_when_the_run_is_over() -> None:
    machine = secure_until("unmasking").tell(events.Aborted, reason="x")
    here = machine.run.attempt
    assert here is not None
    assert not any((here.adverts, here.shares, here.reveals, here.attestations))


def test_after_a_sum_that_could_not_be_opened_all_shares_are_awaited() -> None:
    """The threshold is enough in a first attempt; in the next one there must be shares to spare for the wrong ones."""
    machine = secure_until("summing")
    assert machine.run.attempt is not None
    assert len(machine.run.attempt.reveals) < len(NAMES)
    machine.tell(events.SumFailed, round=0, attempt=1, reason="shares do not fit", fatal=False)
    on_to("summing", machine)
    assert machine.place[:3] == ("running", 0, 2)
    assert machine.run.attempt is not None
    assert len(machine.run.attempt.reveals) == len(NAMES)


def test_two_who_advertise_the_same_key_cost_an_attempt_and_are_named() -> None:
    """A roster that peers would refuse is never relayed; whoever waits for it sees the round reopened instead."""
    machine = secure_until("advertising")
    copied = replace(advert_of("ann"), name="bob")
    for who, advert in (
        ("ann", advert_of("ann")),
        ("bob", copied),
        ("cem", advert_of("cem")),
        ("dag", advert_of("dag")),
    ):
        machine.say(events.KeysAdvertised, who, advert=advert)
    assert machine.run.phase == "advertising"
    machine.overdue()
    assert machine.place == ("running", 0, 2, "advertising")
    assert "bob advertises a key that ann advertised too" in machine.run.reason
