"""Sessions of a fixed cohort: whole rounds, the same bytes after a restart at any event, and what each lie meets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dcfpca.rpca.method import Consensus, TensorMessage
from dcfpca.secagg import errors
from dcfpca.secagg.differencing_check import PastRun
from participant.session import History, Reaction, actions, events
from participant.session.session import Session
from tests.support.runs.secagg import identity_of
from tests.support.runs.secure_sessions import NAMES, WaitingCohort, admit, entropy_of, spec_of
from tests.support.runs.sessions import kinds


def test_rounds_open_to_the_sum_of_the_updates_and_are_verified_by_everybody() -> None:
    cohort = WaitingCohort().set_up()
    for _ in range(4):
        total = cohort.round()
        vectors = [step.vector for name in NAMES if (step := cohort.sessions[name].step) is not None]
        np.testing.assert_allclose(total, np.sum(vectors, axis=0), rtol=0, atol=1e-9)


def test_a_session_restarted_before_any_step_says_the_same_bytes() -> None:
    steady, restless = WaitingCohort(), WaitingCohort()
    for cohort in (steady, restless):
        cohort.key_wanted("a")
    first = restless.key_wanted("a").actions
    restless.restarted("a")
    assert restless.key_wanted("a").actions == first
    steady.set_up()
    restless.set_up()
    for _ in range(3):
        opened = restless.opened()
        restless.restarted("a")
        restless.answer("a", opened)
        before = bytes(restless.sessions["a"].update(opened.ref)[0])
        restless.restarted("a")
        assert restless.answer("a", opened) == (actions.Submit(opened.ref),)
        assert bytes(restless.sessions["a"].update(opened.ref)[0]) == before
        steady.answer("a", steady.opened())
        assert bytes(steady.sessions["a"].update(opened.ref)[0]) == before
        # The cohort goes on: the answer of `a` is given again.
        restless.restarted("a")
        steady.restarted("a")
        restless.round()
        steady.round()


def test_an_acknowledged_update_that_is_asked_for_again_is_sent_again_as_the_same_bytes() -> None:
    """The aggregator that took it is gone, and its successor on another machine has only the database."""
    cohort = WaitingCohort().set_up()
    opened, session = cohort.opened(), cohort.sessions["a"]
    assert cohort.answer("a", opened) == (actions.Submit(opened.ref),)
    before = bytes(session.update(opened.ref)[0])
    session.handle(events.Acknowledged(opened.ref))
    assert session.handle(opened).actions == (actions.Submit(opened.ref),)
    assert bytes(session.update(opened.ref)[0]) == before


def test_a_cohort_out_of_order_is_refused_and_changes_nothing() -> None:
    cohort = WaitingCohort()
    session = cohort.sessions["a"]
    for _ in range(2):  # the second refusal, too, is one that the session can state
        reaction = session.handle(events.KeyWanted(cohort.spec.digest(), NAMES[::-1], entropy_of("a")))
        assert [type(action) for action in reaction.actions] == [actions.LogRefusal]
        assert not reaction.save
    assert isinstance(cohort.key_wanted("a").actions[0], actions.AdvertiseRunKey)
    cohort.set_up().round()


def test_repeats_of_the_set_up_are_answered_with_the_same_bytes_or_not_at_all() -> None:
    cohort = WaitingCohort().set_up()
    session = cohort.sessions["a"]
    for repeat in (
        events.KeyWanted(cohort.spec.digest(), NAMES, entropy_of("x")),
        events.RosterClosed(cohort.roster),
        cohort.relayed("a"),
    ):
        reaction = session.handle(repeat)
        assert not reaction.save
        assert reaction.actions == ()


def complaint(taken: tuple[actions.Action, ...]) -> str:
    refusal, sent = taken
    assert isinstance(refusal, actions.LogRefusal)
    assert isinstance(sent, actions.Complain)
    assert sent.complaint.error == refusal.kind
    return refusal.kind


def test_a_smaller_cohort_and_a_round_beyond_the_last_are_refused_and_complained_of_once() -> None:
    cohort = WaitingCohort().set_up()
    session = cohort.sessions["a"]
    assert complaint(session.handle(cohort.opened(cohort=["a", "b"])).actions) == "IncompleteCohort"
    assert kinds(session.handle(cohort.opened(cohort=["a", "b"]))) == ["LogRefusal"]
    late = cohort.announced()
    late.ref.round = cohort.spec.last_round + 1
    assert complaint(session.handle(cohort.opened(ref=late.ref)).actions) == "PastLastRound"


def test_after_the_end_nothing_is_answered_and_the_record_has_no_secret() -> None:
    cohort = WaitingCohort().set_up()
    cohort.round()
    session = cohort.sessions["a"]
    consensus = cohort.opened().consensus
    reaction = session.handle(events.Ended("finished", "done", 1, cohort.spec.digest(), consensus))
    assert reaction.save
    assert complaint(session.handle(cohort.opened()).actions) == "RunOver"
    again = cohort.restarted("a")
    assert again.secure is not None
    assert again.secure.record
    assert not any(any(root) for root in again.secure.side.state.roots)
    assert complaint(again.handle(cohort.opened()).actions) == "RunOver"


def test_a_forged_sum_and_a_steered_consensus_are_refused_by_name() -> None:
    cohort = WaitingCohort().set_up()
    cohort.round()
    cohort.round()
    honest = cohort.shown
    assert honest is not None
    forged = np.frombuffer(honest.total, dtype="<u8").copy()
    forged[0] += np.uint64(1)
    cohort.shown = replace(honest, total=forged.tobytes())
    with pytest.raises(errors.WrongSum, match="digest"):
        cohort.answer("a", cohort.opened())
    cohort.shown = honest
    steered = cohort.consensus.broadcast.scalars
    steered[-1] *= 0.999
    with pytest.raises(errors.WrongConsensus, match="does not follow"):
        cohort.answer("b", cohort.opened())


def test_a_sum_that_no_true_updates_have_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = WaitingCohort().set_up()
    cohort.round()
    liar = cohort.sites["c"]
    honest = liar.answer

    def more_columns(told: Consensus) -> TensorMessage:
        update = honest(told)
        update.scalars[0] *= 1.3
        return update

    monkeypatch.setattr(liar, "answer", more_columns)
    cohort.round()
    with pytest.raises(errors.ImpossibleSum, match="the sites do not have the columns that they had in the opening"):
        cohort.answer("a", cohort.opened())


def test_exponents_that_do_not_follow_from_the_sum_are_refused() -> None:
    cohort = WaitingCohort().set_up()
    cohort.round()
    cohort.round()
    cohort.exponents = tuple(exponent - 1 for exponent in cohort.exponents)
    with pytest.raises(errors.ChangedExponent, match="follow"):
        cohort.answer("a", cohort.opened())


def test_an_implausible_consensus_is_refused_before_anything_is_computed() -> None:
    cohort = WaitingCohort().set_up()
    cohort.round()
    cohort.consensus.broadcast.tensor[:] *= 3.0
    session, opened = cohort.sessions["a"], cohort.opened()
    session.handle(opened)
    with pytest.raises(errors.ImplausibleConsensus, match="length one"):
        admit(session, opened)


def test_a_site_without_its_keys_says_so_and_answers_nothing() -> None:
    cohort = WaitingCohort().set_up()
    lost = cohort.session("a")
    lost.handle(events.Restored(NAMES, ()))
    assert complaint(lost.handle(cohort.opened()).actions) == "LostState"


def asked(cohort: tuple[str, ...], named: tuple[str, ...], past: list[PastRun], approved: bool = False) -> Session:
    """A session that was asked for its key in a run whose spec names these; `approved`: by a person, before."""
    spec = spec_of(participants=named)
    facts = WaitingCohort().sessions["a"].site
    facts = replace(facts, policy=facts.policy.model_copy(update={"manual_approval": approved}))
    session = Session("run-1", facts, lambda: identity_of("a"), None, False, History(past.copy))
    session.handle(events.Proposed(spec.canonical(), spec.digest()))
    if approved:
        session.handle(events.Approved())
    session.handle(events.KeyWanted(spec.digest(), cohort, entropy_of("a")))
    return session


ALL = (*NAMES, "d")
OF_ALL = [PastRun("run-0", frozenset(ALL))]


@pytest.mark.parametrize("named", [(), ALL])
@pytest.mark.parametrize("approved", [False, True])
def test_a_cohort_that_singles_out_a_member_is_left_unless_a_person_approved_of_it(
    named: tuple[str, ...], approved: bool
) -> None:
    """A routine approval of a spec that names everybody, or nobody, does not cover what the aggregator makes of it."""
    left = asked(NAMES, named, OF_ALL, approved)
    assert left.secure is not None
    assert not left.secure.cohort
    assert left.consent is not None
    (reason,) = left.consent.reasons
    assert "with run-0 it would give sums over d alone" in reason
    assert "name the participants in the spec" in reason


def test_a_person_who_was_told_may_approve_of_a_cohort_that_singles_out_a_member() -> None:
    joined = asked(NAMES, NAMES, OF_ALL, approved=True)
    assert joined.secure is not None
    assert joined.secure.cohort == NAMES


def test_an_approval_does_not_cover_a_run_that_was_joined_after_the_person_was_asked() -> None:
    past: list[PastRun] = []
    spec = spec_of(participants=NAMES)
    facts = WaitingCohort().sessions["a"].site
    facts = replace(facts, policy=facts.policy.model_copy(update={"manual_approval": True}))
    session = Session("run-1", facts, lambda: identity_of("a"), None, False, History(lambda: past))
    session.handle(events.Proposed(spec.canonical(), spec.digest()))
    past += OF_ALL
    (answer,) = session.handle(events.Approved()).actions
    assert isinstance(answer, actions.Consent)
    assert not answer.accept
    assert "sums over d alone" in answer.reasons[0]
    assert "propose the run again" in answer.reasons[0]


def test_a_site_restored_from_a_backup_says_that_it_lost_its_state_when_the_next_round_opens() -> None:
    cohort = WaitingCohort().set_up()
    cohort.round()
    fixed = cohort.sessions["a"].secure
    assert fixed is not None
    backup = fixed.record
    cohort.round()
    behind = cohort.session("a")
    behind.handle(events.Restored(NAMES, (backup, backup)))
    assert complaint(behind.handle(cohort.opened()).actions) == "LostState"
    assert behind.opened is None


def test_a_round_that_fails_after_the_end_of_the_run_is_not_complained_of() -> None:
    cohort = WaitingCohort().set_up()
    session, opened = cohort.sessions["a"], cohort.opened()
    assert kinds(session.handle(opened)) == ["Compute"]
    session.handle(events.Ended("aborted", "stop", 0, cohort.spec.digest(), opened.consensus))
    assert session.handle(events.RoundRefused(opened.ref.round, errors.SiteFailure("no space"))) == Reaction()


@pytest.mark.parametrize("played", [0, 1])
def test_no_misfit_is_provoked_where_a_layout_begins(played: int) -> None:
    """Rounds 0 and 1 have layouts of their own: which exponents they begin with is known without any sum."""
    cohort = WaitingCohort().set_up()
    for _ in range(played):
        cohort.round()
    true = cohort.opened()
    lower = cohort.opened(exponents=[exponent - 8 for exponent in true.announced.exponents])
    session = cohort.sessions["a"]
    assert kinds(session.handle(lower)) == ["Compute"]
    with pytest.raises(errors.ChangedExponent, match="with which its layout begins"):
        admit(session, lower)
