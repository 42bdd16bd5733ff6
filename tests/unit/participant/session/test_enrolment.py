"""A site's answer to a proposed run: given once, bound to one spec, withdrawn when the cohort is too small."""

from __future__ import annotations

from dataclasses import replace

from dcfpca.privacy.zcdp import rho_of
from participant.policy import ABOUT_DATA
from participant.privacy_review import Spending
from participant.session import History, Session, actions, events
from tests.support.runs.secagg import identity_of
from tests.support.runs.sessions import enrolled, kinds, opened, session_of, site_of, spec_of


def test_the_spec_cannot_be_changed_after_consent() -> None:
    session, other = enrolled(), spec_of(rounds=7)
    (refusal,) = session.handle(events.Proposed(other.canonical(), other.digest())).actions
    assert isinstance(refusal, actions.LogRefusal)
    assert "changed" in refusal.reason
    (refusal,) = session.handle(opened(other)).actions
    assert isinstance(refusal, actions.LogRefusal)
    assert "another spec" in refusal.reason
    assert kinds(session.handle(opened(spec_of()))) == ["Compute"]


def test_a_spec_that_does_not_match_its_digest_is_not_answered() -> None:
    (refusal,) = session_of().handle(events.Proposed(spec_of().canonical(), b"x" * 32)).actions
    assert isinstance(refusal, actions.LogRefusal)


def test_a_round_before_consent_is_not_answered() -> None:
    assert kinds(session_of().handle(opened(spec_of()))) == ["LogRefusal"]


def test_a_refusal_gives_its_reasons_and_stands() -> None:
    session = session_of(max_rank=1)
    proposal = events.Proposed(spec_of().canonical(), spec_of().digest())
    first = session.handle(proposal)
    (answer,) = first.actions
    assert isinstance(answer, actions.Consent)
    assert not answer.accept
    assert first.save
    assert session.handle(proposal).actions == first.actions


def test_approval_is_awaited_and_then_given_once() -> None:
    session = session_of(manual_approval=True)
    waiting = session.handle(events.Proposed(spec_of().canonical(), spec_of().digest()))
    assert kinds(waiting) == ["AwaitApproval"]
    assert waiting.save
    assert kinds(session.handle(opened(spec_of()))) == ["LogRefusal"]
    assert kinds(session.handle(events.Approved())) == ["Consent"]
    assert kinds(session.handle(events.Approved())) == []


def test_what_a_person_declines_is_refused_with_the_reason_and_not_taken_up_again() -> None:
    session = session_of(manual_approval=True)
    assert kinds(session.handle(events.Declined("too early"))) == []
    session.handle(events.Proposed(spec_of().canonical(), spec_of().digest()))
    (answer,) = session.handle(events.Declined("no ethics vote")).actions
    assert isinstance(answer, actions.Consent)
    assert (answer.accept, answer.reasons) == (False, ("a person at the site declined it: no ethics vote",))
    assert kinds(session.handle(events.Approved())) == []


def test_the_spec_cannot_be_changed_while_a_person_is_asked_to_approve_it() -> None:
    session, shown, other = session_of(manual_approval=True), spec_of(), spec_of(rounds=7)
    session.handle(events.Proposed(shown.canonical(), shown.digest()))
    (refusal,) = session.handle(events.Proposed(other.canonical(), other.digest())).actions
    assert isinstance(refusal, actions.LogRefusal)
    assert "changed while a person was asked" in refusal.reason
    (answer,) = session.handle(events.Approved()).actions
    assert isinstance(answer, actions.Consent)
    assert (answer.accept, answer.digest) == (True, shown.digest())


def test_a_run_that_waited_for_a_person_is_refused_if_its_budget_was_spent_meanwhile() -> None:
    spent = [Spending(0.0, 0.0)]
    site = site_of("a", manual_approval=True, max_epsilon=1.0)
    session = Session("run-1", site, lambda: identity_of("a"), history=History(spent=lambda: spent[0]))
    spec = spec_of(aggregation="secure", privacy={"epsilon": 1.0})
    assert kinds(session.handle(events.Proposed(spec.canonical(), spec.digest()))) == ["AwaitApproval"]
    spent[0] = Spending(rho_of(0.5, 1e-6), 0.0)
    (answer,) = session.handle(events.Approved()).actions
    assert isinstance(answer, actions.Consent)
    assert not answer.accept
    assert "ε = 0.5 has been spent on this data" in answer.reasons[0]


def test_a_cohort_smaller_than_the_policy_makes_the_site_withdraw_and_stay_out() -> None:
    session = enrolled()
    for _ in range(2):
        (answer,) = session.handle(opened(spec_of(), cohort=("a", "b"))).actions
        assert isinstance(answer, actions.Consent)
        assert not answer.accept
        assert "2 participants" in answer.reasons[0]
    assert kinds(session.handle(opened(spec_of(), round=2))) == ["Consent"]


def test_after_many_refusals_about_the_data_a_person_is_asked_whatever_the_verdict() -> None:
    site = site_of("a", max_data_refusals=2)
    history, fits = History(data_refusals=lambda: 2), spec_of()
    for facts in (site, replace(site, columns=1)):
        session = Session("run-1", facts, lambda: identity_of("a"), history=history)
        assert kinds(session.handle(events.Proposed(fits.canonical(), fits.digest()))) == ["AwaitApproval"]
        approved = session.handle(events.Approved())
        (answer,) = [one for one in approved.actions if isinstance(one, actions.Consent)]
        assert (answer.accept, answer.reasons) == ((True, ()) if facts is site else (False, (ABOUT_DATA,)))
    public = spec_of(rows=77)
    session = Session("run-1", site, lambda: identity_of("a"), history=history)
    assert kinds(session.handle(events.Proposed(public.canonical(), public.digest()))) == ["Consent"]
