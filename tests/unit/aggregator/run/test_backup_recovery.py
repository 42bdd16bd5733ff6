"""A restarted aggregator waits for its sites; one that was set back by a backup goes on beyond them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aggregator.run import events
from aggregator.run.attempts import Discard, RenumberConsensus, ticket_of
from aggregator.run.backup_recovery import ShownTicket, catch_up, newer_attempt, renumbered
from aggregator.run.rules import RoundRules, deadline, rules_of
from aggregator.run.state import Attempt, Phase, Run, Status
from dcfpca.methods import method_of
from dcfpca.rpca.method import Outcome
from dcfpca.run_references import AttemptRef
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms
from tests.support.runs.rules import NAMES, Machine, spec_of

HERE, THERE = b"h" * 32, b"t" * 32


def at_round(number: int, attempt: int = 1, **keys: Any) -> Run:
    """A run at this attempt, opened at second 100."""
    here = Attempt(ref=AttemptRef("r1", number, attempt), first_attempt=1, phase=Phase.UPLOADING, opened_at=100.0)
    made = Run(run_id="r1", created_at=0.0, seal=b"k" * 32, status=Status.RUNNING, cohort=NAMES, attempt=here)
    return replace(made, **keys)


def ticket(run: Run, consensus: bytes = HERE) -> ShownTicket:
    """What a site was given when this run was where it is."""
    assert run.attempt is not None
    sealed = ticket_of(run, run.attempt, consensus)
    return ShownTicket(run.attempt.ref, consensus, sealed)


def rules(spec: RunSpec) -> RoundRules:
    return rules_of(Terms.of(spec))


def ahead(number: int, attempt: int = 1, *, same: bool = False) -> events.NewerAttemptShown:
    return events.NewerAttemptShown(
        at=500.0, participant="ann", ref=AttemptRef("r1", number, attempt), same_consensus=same
    )


def place(run: Run) -> tuple[str, int, int]:
    assert run.attempt is not None
    return run.status.value, run.attempt.ref.round, run.attempt.ref.attempt


# Whose word is taken.


def test_a_ticket_of_the_open_attempt_is_no_news() -> None:
    run = at_round(4)
    assert newer_attempt(run, HERE, "ann", ticket(run), 500.0) is None


def test_a_site_that_missed_rounds_is_no_news() -> None:
    assert newer_attempt(at_round(4), HERE, "ann", ticket(at_round(2), THERE), 500.0) is None
    assert newer_attempt(at_round(4, 3), HERE, "ann", ticket(at_round(4, 2)), 500.0) is None


def test_a_ticket_of_a_forgotten_attempt_is_believed_from_one_site() -> None:
    news = newer_attempt(at_round(4), HERE, "ann", ticket(at_round(6), THERE), 500.0)
    assert news is not None
    assert (news.ref.round, news.ref.attempt, news.same_consensus) == (6, 1, False)


def test_the_same_attempt_opened_at_another_time_is_another_one() -> None:
    was = at_round(4)
    assert was.attempt is not None
    now = replace(was, attempt=replace(was.attempt, opened_at=900.0))
    news = newer_attempt(now, HERE, "ann", ticket(was), 950.0)
    assert news is not None
    assert news.same_consensus


@pytest.mark.parametrize(
    "bent",
    [
        {"ref": AttemptRef("r1", 9, 1)},
        {"ref": AttemptRef("r1", 6, 2)},
        {"consensus": HERE},
        {"ticket": b""},
        {"ticket": b"x" * 40},
        {},
    ],
)
def test_a_ticket_that_this_run_did_not_make_is_ignored(bent: dict[str, Any]) -> None:
    true = ticket(at_round(6), THERE)
    sealed_by_another = ticket(at_round(6, seal=b"z" * 32), THERE)
    false = replace(sealed_by_another if not bent else true, **bent)
    assert newer_attempt(at_round(4), HERE, "ann", false, 500.0) is None


def test_a_run_from_before_tickets_believes_none() -> None:
    run = at_round(4, seal=b"")
    assert ticket(run).ticket == b""
    assert newer_attempt(run, HERE, "ann", ticket(at_round(6, seal=b"")), 500.0) is None


# What follows.


def test_a_run_set_back_goes_on_with_its_consensus_beyond_the_last_round_that_was_opened() -> None:
    spec, run = spec_of(method="gradient"), at_round(4)
    after, effects = catch_up(rules(spec), run, ahead(6))
    assert place(after) == ("running", 7, 1)
    assert effects == (Discard(AttemptRef("r1", 4, 1)), RenumberConsensus(7))
    assert "restored from a backup" in after.reason
    old = replace(method_of(spec).begin(), round=4)
    assert renumbered(old, RenumberConsensus(7)).round == 7
    assert renumbered(old, RenumberConsensus(7)).broadcast is old.broadcast


def test_sites_ahead_within_the_round_cost_an_attempt_that_does_not_count() -> None:
    after, effects = catch_up(rules(spec_of(method="gradient")), at_round(4, 2), ahead(4, 5, same=True))
    assert place(after) == ("running", 4, 6)
    assert after.attempt is not None
    assert after.attempt.first_attempt == 6
    assert effects == (Discard(AttemptRef("r1", 4, 2)),)


def test_another_consensus_for_the_open_round_is_never_announced() -> None:
    """The run has reached round 6 again by another way; a site that comes late has seen the first round 6."""
    after, _ = catch_up(rules(spec_of(method="gradient")), at_round(6, 3), ahead(6, 1, same=False))
    assert place(after) == ("running", 7, 1)


@pytest.mark.parametrize("event", [ahead(3), ahead(3, 9), ahead(4, 1, same=True)])
def test_a_run_that_is_beyond_already_does_not_move(event: events.NewerAttemptShown) -> None:
    run = at_round(4, 2)
    assert catch_up(rules(spec_of(method="gradient")), run, event) == (run, ())


def test_the_rounds_that_sites_agreed_to_are_not_exceeded() -> None:
    spec = spec_of(method="gradient", rounds=10)
    assert place(catch_up(rules(spec), at_round(4), ahead(spec.last_round - 1))[0]) == ("running", spec.last_round, 1)
    after, effects = catch_up(rules(spec), at_round(4), ahead(spec.last_round))
    assert after.status is Status.FINISHED
    assert "its rounds are used up" in after.reason
    assert effects == (Discard(AttemptRef("r1", 4, 1)), RenumberConsensus(4, final=True))
    final = renumbered(replace(method_of(spec).begin(), round=4), RenumberConsensus(4, final=True))
    assert (final.round, final.outcome) == (4, Outcome.OUT_OF_ROUNDS)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_run_set_back_to_its_opening_goes_on_under_a_number_that_no_site_has_seen(number: int) -> None:
    after, effects = catch_up(rules(spec_of()), at_round(number), ahead(5))
    assert place(after) == ("running", 6, 1)
    assert effects == (Discard(AttemptRef("r1", number, 1)), RenumberConsensus(6))


def test_a_store_from_before_the_run_began_ends_it() -> None:
    enrolling = Run(run_id="r1", created_at=0.0, seal=b"k" * 32)
    assert catch_up(rules(spec_of()), enrolling, ahead(5))[0].status is Status.FAILED


def test_a_paused_run_is_moved_and_stays_paused() -> None:
    after, _ = catch_up(rules(spec_of(method="gradient")), at_round(4, status=Status.PAUSED), ahead(6))
    assert place(after) == ("paused", 7, 1)


# Restarts.


def restarted(at: float, **keys: Any) -> Machine:
    """A run of four, its round opened at second 0 with 100 seconds, after a restart of the aggregator."""
    machine = Machine(spec_of(quorum=3, **keys)).enrol(*NAMES)
    machine.at = at
    return machine.tell(events.Restarted)


def test_after_a_restart_a_quorum_has_the_time_of_a_round_to_come_back() -> None:
    machine = restarted(at=400.0)
    assert deadline(machine.rules, machine.run) == 500.0
    assert machine.run.attempt is not None
    assert machine.run.attempt.ref.attempt == 1


def test_a_deadline_that_is_further_away_stays_where_it_was() -> None:
    machine = restarted(at=10.0)
    for name in NAMES[:3]:
        machine.tell(events.Joined, participant=name)
    assert deadline(machine.rules, machine.run) == 100.0
    assert machine.place[:3] == ("running", 0, 1)


def test_an_attempt_whose_time_ran_out_in_a_restart_is_opened_anew_and_does_not_count() -> None:
    machine = restarted(at=400.0, max_attempts=1)
    for name in NAMES[:2]:
        machine.tell(events.Joined, participant=name)
    assert machine.place[:3] == ("running", 0, 1)
    machine.tell(events.Joined, participant=NAMES[2])
    assert machine.place[:3] == ("running", 0, 2)
    assert deadline(machine.rules, machine.run) == 500.0
    assert machine.run.attempt is not None
    assert machine.run.attempt.first_attempt == 2


def test_one_site_that_comes_and_goes_is_no_quorum() -> None:
    machine = restarted(at=400.0)
    for _ in range(5):
        machine.tell(events.Joined, participant=NAMES[0])
    assert machine.place[:3] == ("running", 0, 1)


def test_too_few_who_come_back_count_as_a_failed_attempt_in_the_end() -> None:
    machine = restarted(at=400.0, max_attempts=1)
    machine.tell(events.Joined, participant=NAMES[0])
    machine.at = 500.0
    machine.overdue()
    assert machine.place[0] == "paused"
    assert machine.run.restarted_at == 0.0


def test_updates_lost_in_a_power_cut_do_not_count_against_the_round() -> None:
    machine = Machine(spec_of(max_attempts=1)).enrol(*NAMES)
    machine.tell(events.UpdatesLost, round=0, attempt=1, reason="torn")
    assert machine.place[:3] == ("running", 0, 2)


def test_an_enrolment_that_ran_out_in_a_restart_waits_for_answers() -> None:
    machine = Machine(spec_of(enrol_seconds=30))
    machine.at = 400.0
    machine.tell(events.Restarted)
    assert deadline(machine.rules, machine.run) == 430.0
    machine.enrol(*NAMES)
    assert machine.run.restarted_at == 0.0
    assert deadline(machine.rules, machine.run) == 500.0
