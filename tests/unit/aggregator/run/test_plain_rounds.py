"""Rounds of a plain run: quorum, deadlines, attempts, and the fate of every update."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.run import events
from aggregator.run.attempts import Accumulate, Discard, Sum
from aggregator.run.rules import awaited, deadline
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.messages import Advert, Misfit
from dcfpca.wire.receipt import Fate
from tests.support.runs.rules import NAMES, Machine, spec_of

UPDATE = {"sha256": b"d" * 32, "size": 8}


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


def test_a_repeat_is_a_duplicate_and_changes_nothing_also_when_the_round_has_closed() -> None:
    machine = running()
    assert machine.say(events.UpdateReceived, "ann", **UPDATE).fate is Fate.ACCEPTED
    before = machine.run
    assert machine.say(events.UpdateReceived, "ann", **UPDATE).fate is Fate.DUPLICATE
    assert machine.run is before
    machine.upload("bob", "cem", "dag")
    assert machine.run.phase == "summing"
    assert machine.say(events.UpdateReceived, "ann", **UPDATE).fate is Fate.DUPLICATE


def test_a_second_different_update_is_rejected() -> None:
    machine = running().upload("ann")
    before = machine.run
    assert machine.say(events.UpdateReceived, "ann", sha256=b"o" * 32, size=8).fate is Fate.REJECTED
    assert machine.run is before


def test_an_update_of_an_earlier_attempt_is_late_and_of_a_later_one_rejected() -> None:
    machine = running().overdue()
    assert machine.place[2] == 2
    before = machine.run
    assert machine.say(events.UpdateReceived, "ann", **UPDATE | {"attempt": 1}).fate is Fate.LATE
    assert machine.say(events.UpdateReceived, "ann", **UPDATE | {"attempt": 3}).fate is Fate.REJECTED
    assert machine.say(events.UpdateReceived, "ann", **UPDATE | {"round": 1}).fate is Fate.REJECTED
    assert machine.run.attempt is before.attempt


def test_a_stranger_is_rejected() -> None:
    machine = running()
    before = machine.run
    assert machine.say(events.UpdateReceived, "eve", **UPDATE).fate is Fate.REJECTED
    assert machine.run is before


def test_a_step_of_the_set_up_and_a_misfit_are_rejected_in_a_plain_run() -> None:
    machine = running()
    before = machine.run
    key, misfit = Advert("ann", b"", b"", b"", b"", b""), Misfit("ann", b"", b"", b"")
    assert machine.say(events.RunKeyAdvertised, "ann", run_key=key).fate is Fate.REJECTED
    assert machine.say(events.GroupSecretShared, "ann", shares=()).fate is Fate.REJECTED
    assert machine.say(events.MisfitReported, "ann", misfit=misfit).fate is Fate.REJECTED
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
    assert awaited(machine.rules, machine.run) == ("dag",)


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
    assert awaited(machine.rules, machine.run) == ("dag",)


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
    assert deadline(machine.rules, machine.run) is None


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
