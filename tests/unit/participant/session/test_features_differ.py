"""A site whose features differ from those of all sites: it waits for a person, or leaves, before it answers a fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from participant.policy import ABOUT_DATA
from participant.session import Session, actions, events
from tests.support.runs.sessions import computed, enrolled, kinds, opened, session_of, spec_of

SPEC = spec_of(scaling="auto")
DIFFERS = events.FeaturesDiffer(1, ("glucose: the median here lies 9.1 spreads above that of all sites.",))


def _open(on_shift: str) -> Session:
    session = enrolled(spec=SPEC, on_shift=on_shift)
    assert kinds(session.handle(opened(SPEC))) == ["Compute"]
    return session


def test_only_the_first_round_of_a_fit_is_compared_and_only_where_the_policy_asks_for_it() -> None:
    asking = _open("ask")
    assert not asking.compares_features("median")
    assert asking.compares_features("open")
    assert not _open("tell").compares_features("open")
    done = computed()
    asking.handle(replace(done, step=replace(done.step, stage="deviation")))
    assert asking.compares_features("open")
    asking.handle(replace(done, step=replace(done.step, stage="open")))
    assert not asking.compares_features("fit")


def test_nothing_is_answered_until_a_person_has_seen_how_features_differ() -> None:
    session = _open("ask")
    waiting = session.handle(DIFFERS)
    assert waiting.actions == (actions.AwaitApproval(DIFFERS.notes[0]),)
    assert waiting.save
    assert kinds(session.handle(opened(SPEC, attempt=2))) == []
    assert session.resume() == ()
    approved = session.handle(events.Approved())
    assert (kinds(approved), approved.save) == (["Compute"], True)
    assert not session.compares_features("open")
    assert kinds(session.handle(events.Approved())) == []


@pytest.mark.parametrize(
    ("on_shift", "last", "said"),
    [
        ("refuse", DIFFERS, ABOUT_DATA),
        ("ask", events.Declined("wrong unit"), "a person at the site declined it: wrong unit"),
    ],
)
def test_a_site_that_leaves_says_nothing_of_its_features(on_shift: str, last: events.Event, said: str) -> None:
    session = _open(on_shift)
    if on_shift == "ask":
        session.handle(DIFFERS)
    answer = session.handle(last).actions[-1]
    assert isinstance(answer, actions.Consent)
    assert (answer.accept, answer.reasons) == (False, (said,))
    assert kinds(session.handle(opened(SPEC, attempt=2))) == ["Consent"]


def test_a_run_that_does_not_tell_medians_before_its_fit_is_refused_by_such_a_policy() -> None:
    spec = spec_of()
    (answer,) = session_of(on_shift="ask").handle(events.Proposed(spec.canonical(), spec.digest())).actions
    assert isinstance(answer, actions.Consent)
    assert not answer.accept
    assert 'scaling = "auto" or "robust"' in answer.reasons[0]
