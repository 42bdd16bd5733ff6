"""A site's session: rounds of a plain run, restarts, the end; its consent is in test_enrolment.py, secure rounds in
test_secure_run.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dcfpca.run_references import AttemptRef
from dcfpca.secagg.errors import SiteFailure
from dcfpca.secagg.messages import Roster
from participant.session import Reaction, actions, events
from tests.support.runs.sessions import (
    CONSENSUS,
    SITES,
    computed,
    enrolled,
    kinds,
    opened,
    session_of,
    spec_of,
    update_of,
)


def test_a_cohort_that_grows_is_refused() -> None:
    session = enrolled()
    session.handle(opened(spec_of()))
    (refusal,) = session.handle(opened(spec_of(), round=2, cohort=(*SITES, "mallory"))).actions
    assert isinstance(refusal, actions.LogRefusal)
    assert "mallory" in refusal.reason


def test_a_second_consensus_for_one_round_is_refused() -> None:
    session = enrolled()
    session.handle(opened(spec_of()))
    other = replace(CONSENSUS, sha256=b"d" * 32)
    assert kinds(session.handle(opened(spec_of(), attempt=2, consensus=other))) == ["LogRefusal"]


def test_a_repeated_opening_asks_for_nothing_twice() -> None:
    session = enrolled()
    session.handle(opened(spec_of()))
    again = session.handle(opened(spec_of()))
    assert again == Reaction()


def test_an_update_that_was_acknowledged_is_not_sent_again() -> None:
    session = enrolled()
    session.handle(opened(spec_of()))
    (submit,) = session.handle(computed()).actions
    assert session.handle(opened(spec_of())).actions == (submit,)
    session.handle(events.Acknowledged(AttemptRef("run-1", 1, 1)))
    assert session.handle(opened(spec_of())) == Reaction()


def test_late_assignments_of_earlier_attempts_are_ignored() -> None:
    session = enrolled()
    session.handle(opened(spec_of(), round=2))
    assert session.handle(opened(spec_of(), round=1)) == Reaction()
    assert session.opened == opened(spec_of(), round=2)


def test_a_step_that_ends_after_its_round_is_followed_by_the_present_round() -> None:
    spec = spec_of()
    session = enrolled(spec=spec)
    assert kinds(session.handle(opened(spec))) == ["Compute"]
    assert kinds(session.handle(opened(spec, round=2))) == []
    (following,) = session.handle(computed(round=1)).actions
    assert following == actions.Compute(2, CONSENSUS)
    assert session.handle(computed(round=2)).actions == (actions.Submit(AttemptRef("run-1", 2, 1)),)


def test_a_plain_update_is_sent_as_computed_and_again_in_the_next_attempt() -> None:
    spec = spec_of()
    session = enrolled(spec=spec)
    session.handle(opened(spec))
    session.handle(computed())
    sent = session.update(AttemptRef("run-1", 1, 1))
    assert (bytes(sent[0]), *sent[1:]) == (update_of("a").tobytes(), 0, b"")
    # The driver finds that the step of the round is there, and computes nothing.
    assert session.handle(opened(spec, attempt=2)).actions == (actions.Compute(1, CONSENSUS),)
    assert session.step is not None
    second = AttemptRef("run-1", 1, 2)
    assert session.handle(events.Answered(session.step, second)).actions == (actions.Submit(second),)
    assert session.update(second) == sent


def test_a_failed_step_sits_the_round_out_and_is_tried_again_when_asked_again() -> None:
    session = enrolled()
    session.handle(opened(spec_of()))
    assert kinds(session.handle(events.RoundRefused(1, SiteFailure("no memory")))) == ["LogRefusal"]
    assert "Compute" in kinds(session.handle(opened(spec_of())))


def test_after_a_restart_the_local_step_under_way_is_taken_up_again() -> None:
    session = enrolled()
    session.replay([opened(spec_of())])
    assert session.resume() == (actions.Compute(1, CONSENSUS),)


def test_a_step_of_the_set_up_in_a_plain_run_is_refused() -> None:
    session = enrolled()
    session.handle(opened(spec_of()))
    (refusal,) = session.handle(events.RosterClosed(Roster(()))).actions
    assert isinstance(refusal, actions.LogRefusal)
    assert "keys of a secure run were asked for" in refusal.reason


def ended(status: str = "finished") -> events.Ended:
    return events.Ended(status, "converged", 9, spec_of().digest(), CONSENSUS)


def test_a_finished_run_is_written_once() -> None:
    session = enrolled()
    assert session.handle(ended()).actions == (actions.Finish(9, "converged", CONSENSUS),)
    assert session.handle(events.ResultsWritten("converged")).save
    assert session.handle(ended()) == Reaction()
    # Only an aggregator that was set back to before the end asks: it is told that this site will not go along.
    (told,) = session.handle(opened(spec_of(), round=10)).actions
    assert isinstance(told, actions.Consent)
    assert not told.accept
    assert session.handle(events.TurnedDown("late")) == Reaction()


@pytest.mark.parametrize("status", ["aborted", "failed"])
def test_a_run_without_result_is_forgotten(status: str) -> None:
    session = enrolled()
    reaction = session.handle(ended(status))
    assert kinds(reaction) == ["Forget"]
    assert reaction.save


def test_an_end_under_another_spec_writes_nothing() -> None:
    session = enrolled()
    assert kinds(session.handle(replace(ended(), digest=b"x" * 32))) == ["LogRefusal"]


@pytest.mark.parametrize(
    ("policy", "export", "kind"),
    [
        ({"allow_export": True}, True, "Export"),
        ({"allow_export": True}, False, "RefuseExport"),
        ({"allow_export": True, "private": True}, True, "RefuseExport"),
        ({}, True, "RefuseExport"),
    ],
)
def test_an_export_is_decided_by_the_site_alone(policy: dict[str, Any], export: bool, kind: str) -> None:
    session = enrolled(spec=spec_of(export=export), **policy)
    assert kinds(session.handle(events.ExportWanted("e1"))) == [kind]


def test_an_export_of_a_run_that_was_refused_is_refused() -> None:
    session = session_of(max_rank=1, allow_export=True)
    session.handle(events.Proposed(spec_of(export=True).canonical(), spec_of(export=True).digest()))
    assert kinds(session.handle(events.ExportWanted("e1"))) == ["RefuseExport"]
