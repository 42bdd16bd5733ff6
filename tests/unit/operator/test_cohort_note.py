"""What `run start` says of the cohort of the last run before it proposes the next."""

from typing import Any

import pytest

from dcfpca.operator.proposals import APPROVAL_SECONDS, cohort_note, presence_note, with_time_for_people
from dcfpca.spec import parse_spec
from dcfpca.v1 import admin_pb2 as pb

SITES = ("ann", "bob", "cem", "dag")


def note(spec: dict[str, Any] | None = None, last: dict[str, Any] | None = None, **states: str) -> str:
    earlier = parse_spec({"rows": 30, "rank": 3} | (last or {}))
    enrolled = [pb.EnrolledView(participant=name) for name in SITES]
    view = pb.RunView(run_id="20300101-abcd0123", spec=earlier.canonical(), round=5, enrolled=enrolled)
    known = dict.fromkeys(SITES, "connected") | states
    people = [pb.ParticipantView(name=name, state=state) for name, state in known.items()]
    return cohort_note(parse_spec({"rank": 3} | (spec or {})), [view], people)


def test_a_member_that_is_away_is_waited_for() -> None:
    assert note(dag="away") == (
        "waiting for dag, for at most 30 s: the others would refuse to sum without the members of run 20300101-abcd0123"
    )


@pytest.mark.parametrize("states", [{"dag": "revoked"}, {"eve": "connected"}, {"dag": "away", "eve": "connected"}])
def test_a_cohort_that_no_waiting_makes_alike_would_be_refused(states: dict[str, Any]) -> None:
    assert "so the sites will refuse; name who takes part" in note(**states)


def test_a_named_cohort_that_differs_by_one_is_for_people_to_approve() -> None:
    said = note({"participants": SITES[:3]})
    assert "would single out dag, so a person at each of ann, bob, cem is asked to approve it:" in said


def test_nothing_is_said_where_nothing_stands_in_the_way() -> None:
    assert note() == ""
    assert note({"participants": SITES}, dag="away") == "", "enrolment waits for those that the spec names"
    assert note({"aggregation": "plain"}, dag="away") == ""
    assert note(last={"aggregation": "plain"}, dag="away") == ""
    assert note({"rows": 31}, dag="away") == "", "it is about other features"
    assert cohort_note(parse_spec({"rank": 3}), [], []) == ""


def test_enrolment_is_open_for_a_day_where_a_person_is_asked_unless_the_spec_says_how_long() -> None:
    known = [pb.ParticipantView(name="ann", asks=True), pb.ParticipantView(name="bob")]
    longer, said = with_time_for_people(parse_spec({"rank": 3}), known, asked=False)
    assert longer.enrol_seconds == APPROVAL_SECONDS
    assert said.startswith("a person at ann is asked")
    stated = parse_spec({"rank": 3, "enrol_seconds": 5})
    assert with_time_for_people(stated, known, asked=True) == (stated, "")
    without = parse_spec({"rank": 3, "participants": ["bob", "cem"]})
    assert with_time_for_people(without, known, asked=False) == (without, "")
    assert with_time_for_people(without, known, asked=True)[0].enrol_seconds == APPROVAL_SECONDS


def test_too_few_connected_sites_are_said_at_once_with_what_to_do() -> None:
    spec = parse_spec({"rank": 3})
    assert "no participant is connected: start the sites" in presence_note(spec, [])
    away = pb.ParticipantView(name="c", state="away")
    people = [pb.ParticipantView(name=name, state="connected") for name in "ab"]
    assert presence_note(spec, [*people, away]) == "not connected: c; enrolment waits for 30 s"
    said = presence_note(spec, people)
    assert said.startswith("a, b are connected, and a secure run needs 3 sites. In a sum over two")
    assert "--aggregation plain" in said
    assert presence_note(parse_spec({"rank": 3, "aggregation": "plain"}), people) == ""
    assert presence_note(spec, [*people, pb.ParticipantView(name="c", state="connected")]) == ""
