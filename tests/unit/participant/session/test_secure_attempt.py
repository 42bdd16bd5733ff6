"""Sessions of a cohort in one secure attempt, with the aggregator's half of the secure sum as their relay."""

from __future__ import annotations

import numpy as np

from dcfpca import secagg
from dcfpca.attempt_ref import AttemptRef
from dcfpca.message_fate import Fate
from participant.session import actions, events
from participant.session.events import Kind
from tests.support.sessions import SITES, Cohort, computed, enrolled, kinds, update_of


def test_a_secure_attempt_of_four_sessions_opens_to_the_sum_of_their_updates() -> None:
    cohort = Cohort()
    cohort.open()
    cohort.share()
    cohort.submit()
    expected = sum(update_of(name) for name in SITES)
    np.testing.assert_allclose(cohort.unmask(), expected, rtol=0, atol=1e-15)


def test_a_session_replayed_at_any_point_says_the_same_bytes_again() -> None:
    cohort = Cohort()
    cohort.open()
    cohort.share()
    cohort.submit()
    cohort.unmask()
    for cut in range(1, len(cohort.said["a"])):
        again = enrolled("a", cohort.spec)
        # After a restart the outcome of the local step is known first, whenever it came about in the earlier life.
        past = cohort.said["a"][:cut]
        again.replay(sorted(past, key=lambda event: not isinstance(event, events.Computed)))
        present = cohort.said["a"][cut - 1]
        repeated = again.handle(present)
        assert not repeated.save
        reference = enrolled("a", cohort.spec)
        for event in past[:-1]:
            reference.handle(event)
        expected = [action for action in reference.handle(present).actions if not isinstance(action, actions.Compute)]
        told = {type(action): action for action in repeated.actions}
        for action in expected:
            assert told[type(action)] == action
        if isinstance(present, events.MaskWanted):
            assert again.update_bytes(AttemptRef("run-1", 1, 1)) == reference.update_bytes(AttemptRef("run-1", 1, 1))


def test_keys_and_shares_travel_while_the_local_step_computes() -> None:
    cohort = Cohort()
    cohort.open()
    roster = events.RosterRelayed(AttemptRef("run-1", 1, 1), secagg.roster_for(cohort.closed, "a"))
    assert kinds(cohort.sessions["a"].handle(roster)) == ["SendShares"]
    assert kinds(cohort.sessions["a"].handle(computed())) == ["SendBound"]


def test_a_bound_known_before_the_roster_waits_for_it_and_travels_with_the_shares() -> None:
    cohort = Cohort()
    cohort.open()
    assert kinds(cohort.sessions["a"].handle(computed())) == []
    roster = events.RosterRelayed(AttemptRef("run-1", 1, 1), secagg.roster_for(cohort.closed, "a"))
    (send,) = cohort.sessions["a"].handle(roster).actions
    assert isinstance(send, actions.SendShares)
    assert send.bound is not None
    assert actions.kinds_of(send) == (Kind.SHARES, Kind.BOUND)


def test_repeats_are_answered_until_the_answer_is_known_to_have_arrived() -> None:
    cohort = Cohort()
    cohort.open()
    cohort.share()
    session, roster = cohort.sessions["a"], cohort.said["a"][1]
    (send,) = session.handle(roster).actions
    assert isinstance(send, actions.SendShares)
    assert send.bound is not None
    session.handle(events.Acknowledged(AttemptRef("run-1", 1, 1), Kind.SHARES, Fate.ACCEPTED))
    assert kinds(session.handle(roster)) == ["SendBound"]
    session.handle(events.Acknowledged(AttemptRef("run-1", 1, 1), Kind.BOUND, Fate.DUPLICATE))
    assert kinds(session.handle(roster)) == []


def test_another_survivor_set_is_refused_and_changes_nothing() -> None:
    cohort = Cohort()
    cohort.open()
    cohort.share()
    cohort.submit()
    session = cohort.sessions["a"]
    session.handle(events.SurvivorsAnnounced(AttemptRef("run-1", 1, 1), secagg.Survivors(SITES)))
    (refusal,) = session.handle(
        events.SurvivorsAnnounced(AttemptRef("run-1", 1, 1), secagg.Survivors(("a", "b", "c")))
    ).actions
    assert isinstance(refusal, actions.LogRefusal)
    assert refusal.kind == "InconsistentSurvivors"
    assert kinds(session.handle(events.SurvivorsAnnounced(AttemptRef("run-1", 1, 1), secagg.Survivors(SITES)))) == [
        "Attest"
    ]


def test_a_round_that_was_opened_is_not_opened_again_for_other_survivors() -> None:
    first = Cohort()
    first.open()
    first.share()
    first.submit()
    assert first.sessions["a"].opened_for(1) == ()
    first.unmask()
    assert first.sessions["a"].opened_for(1) == SITES
    assert first.sessions["a"].opened_for(2) == ()
    second = Cohort(opened_before=SITES)
    second.open()
    second.share()
    second.submit()
    fewer = secagg.Survivors(("a", "b", "c"))
    (refusal,) = second.sessions["a"].handle(events.SurvivorsAnnounced(AttemptRef("run-1", 1, 1), fewer)).actions
    assert isinstance(refusal, actions.LogRefusal)
    assert refusal.kind == "DifferencedSum"
    same = secagg.Survivors(SITES)
    assert kinds(second.sessions["a"].handle(events.SurvivorsAnnounced(AttemptRef("run-1", 1, 1), same))) == ["Attest"]


def test_a_sum_over_fewer_survivors_than_the_policy_demands_is_not_signed() -> None:
    cohort = Cohort()
    cohort.open()
    cohort.share()
    cohort.submit()
    (refusal,) = (
        cohort.sessions["a"]
        .handle(events.SurvivorsAnnounced(AttemptRef("run-1", 1, 1), secagg.Survivors(("a", "b"))))
        .actions
    )
    assert isinstance(refusal, actions.LogRefusal)
