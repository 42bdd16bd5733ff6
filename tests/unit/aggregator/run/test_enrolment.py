"""Who takes part: answers, the closing of enrolment, withdrawals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aggregator.run import events
from aggregator.run.attempts import Discard, Kind, Sum
from aggregator.run.enrolment import away_members
from aggregator.run.rules import assignments, awaited, deadline
from aggregator.run.state import Run
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.differencing_check import PastRun
from dcfpca.wire.receipt import Fate
from tests.support.runs.rules import NAMES, Machine, spec_of


def test_a_fixed_cohort_begins_as_soon_as_everybody_named_has_answered() -> None:
    machine = Machine().enrol("ann", "bob", "cem")
    assert machine.place[0] == "enrolling"
    machine.enrol("dag")
    assert machine.place == ("running", 0, 1, "uploading")
    assert machine.run.cohort == NAMES


def test_an_open_run_waits_for_the_end_of_enrolment() -> None:
    machine = Machine(spec_of(participants=())).enrol("zoe", "ann")
    assert machine.place[0] == "enrolling"
    machine.tell(events.EnrolmentClosed)
    assert machine.place[:2] == ("running", 0)
    assert machine.run.cohort == ("ann", "zoe")


def test_closing_a_second_time_changes_nothing() -> None:
    machine = Machine().enrol(*NAMES)
    before = machine.run
    assert machine.tell(events.EnrolmentClosed).run is before


def test_enrolment_ends_at_its_deadline() -> None:
    machine = Machine(spec_of(enrol_seconds=30))
    assert deadline(machine.rules, machine.run) == 30


def test_too_few_fail_the_run_with_every_reason() -> None:
    machine = Machine().enrol("ann")
    machine.say(events.Responded, "bob", accept=False, reasons=("too large a rank",))
    machine.tell(events.EnrolmentClosed)
    assert machine.run.status.value == "failed"
    assert machine.run.reason == (
        "1 enrolled where 3 are needed; bob refused: too large a rank; no answer from cem, dag"
    )


@pytest.mark.parametrize(("aggregation", "names", "status"), [("secure", "ab", "failed"), ("plain", "a", "running")])
def test_an_open_secure_run_needs_three_lest_the_sum_give_one_away(aggregation: str, names: str, status: str) -> None:
    machine = Machine(spec_of(participants=(), aggregation=aggregation)).enrol(*names)
    assert machine.tell(events.EnrolmentClosed).run.status.value == status


def test_a_stranger_is_rejected_from_a_fixed_cohort() -> None:
    machine = Machine()
    before = machine.run
    assert machine.say(events.Responded, "eve", accept=True).fate is Fate.REJECTED
    assert machine.run is before


def test_the_first_answer_stands() -> None:
    machine = Machine()
    machine.say(events.Responded, "ann", accept=False, reasons=("no",))
    before = machine.run
    assert machine.say(events.Responded, "ann", accept=True).fate is Fate.REJECTED
    assert machine.run is before


def test_a_repeated_answer_is_a_duplicate() -> None:
    machine = Machine().enrol("ann")
    before = machine.run
    assert machine.say(events.Responded, "ann", accept=True).fate is Fate.DUPLICATE
    assert machine.run is before


def test_an_answer_after_enrolment_is_late() -> None:
    machine = Machine(spec_of(participants=())).enrol("ann", "bob", "cem").tell(events.EnrolmentClosed)
    assert machine.say(events.Responded, "dag", accept=True).fate is Fate.LATE
    assert "dag" not in machine.run.enrolled


def test_one_who_withdraws_before_the_start_is_not_in_the_cohort() -> None:
    machine = Machine(spec_of(quorum=2)).enrol("ann", "bob", "cem")
    assert machine.say(events.Responded, "ann", accept=False, reasons=("second thoughts",)).fate is Fate.ACCEPTED
    machine.enrol("dag")
    assert machine.run.cohort == ("bob", "cem", "dag")


def test_one_who_withdraws_is_no_longer_waited_for() -> None:
    machine = Machine().enrol(*NAMES).upload("ann", "bob", "cem")
    assert awaited(machine.rules, machine.run) == ("dag",)
    machine.say(events.Responded, "dag", accept=False, reasons=("cohort too small",))
    assert machine.place == ("running", 0, 1, "summing")
    assert Sum(AttemptRef("r1", 0, 1)) in machine.effects


def test_a_run_ends_when_too_few_are_left_and_forgets_what_came_in() -> None:
    machine = Machine(spec_of(quorum=4)).enrol(*NAMES).upload("ann")
    machine.say(events.Responded, "dag", accept=False, reasons=("no",))
    assert machine.run.status.value == "failed"
    assert "dag refused: no" in machine.run.reason
    assert Discard(AttemptRef("r1", 0, 1)) in machine.effects


def test_a_repeated_withdrawal_is_a_duplicate() -> None:
    machine = Machine().enrol(*NAMES)
    machine.say(events.Responded, "dag", accept=False)
    before = machine.run
    assert machine.say(events.Responded, "dag", accept=False).fate is Fate.DUPLICATE
    assert machine.run is before


def test_one_who_withdrew_does_not_come_back_by_connecting() -> None:
    machine = Machine().enrol(*NAMES)
    machine.say(events.Responded, "dag", accept=False)
    machine.tell(events.Joined, participant="dag")
    assert "dag" in machine.run.absent


def test_a_cohort_too_small_for_its_quorum_fails() -> None:
    machine = Machine(spec_of(participants=(), quorum=4)).enrol("ann", "bob", "cem").tell(events.EnrolmentClosed)
    assert machine.run.status.value == "failed"


def test_consent_is_kept_as_it_was_given() -> None:
    machine = Machine()
    machine.say(events.Responded, "ann", accept=True, private=True, signature=b"sig", fingerprint="f" * 64)
    consent = machine.run.enrolled["ann"]
    assert (consent.private, consent.signature, consent.fingerprint) == (True, b"sig", "f" * 64)


def test_withdrawing_in_mid_round_of_a_plain_run_lets_it_go_on() -> None:
    machine = Machine().enrol(*NAMES).upload("ann", "bob", "cem")
    machine.say(events.Responded, "dag", accept=False)
    assert machine.place[3] == "summing"
    assert machine.run.attempt is not None
    assert machine.run.attempt.survivors == NAMES[:3]


def test_those_who_enrolled_in_a_run_that_never_began_are_told_of_its_end() -> None:
    machine = Machine(spec_of()).enrol("ann")
    machine.tell(events.EnrolmentClosed, overdue=True)
    (told,) = assignments(machine.rules, machine.run, "ann")
    assert told.kind is Kind.RUN_FINISHED
    assert machine.run.status.value == "failed"
    assert assignments(machine.rules, machine.run, "bob") == []


@pytest.mark.parametrize(
    ("last", "connected", "awaited"),
    [
        ("abcd", "abc", "d"),  # the sums of both runs would differ by d alone
        ("abcde", "abc", "de"),
        ("abcdef", "abc", ""),  # three together are no fewer than the smallest cohort
        ("abc", "abc", ""),
        ("abc", "abcd", ""),  # d is new, and nobody is away whom one could wait for
    ],
)
def test_members_of_the_last_run_are_awaited_where_sums_without_them_would_single_them_out(
    last: str, connected: str, awaited: str
) -> None:
    spec, new = spec_of(aggregation="secure"), Run(run_id="new", created_at=2.0)
    before = PastRun("last", frozenset(last))
    assert away_members(spec, new, before, frozenset(connected)) == frozenset(awaited)
    refused = replace(new, refusals=dict.fromkeys(awaited, ("no",)))
    assert away_members(spec, refused, before, frozenset(connected)) == frozenset(), "they have answered"
