"""Who takes part and who does not: each with the reason that its operator can act on."""

from __future__ import annotations

import json

from dcfpca.text.run_views import enrolment_lines, reason_without_refusals, unknown_names
from dcfpca.v1 import admin_pb2 as pb


def known(**states: str) -> list[pb.ParticipantView]:
    return [pb.ParticipantView(name=name, state=state) for name, state in states.items()]


def test_a_misspelt_name_gets_the_closest_one() -> None:
    said = list(unknown_names(["clevland", "va", "mars"], known(cleveland="connected", va="away")))
    assert said == [
        "clevland has never connected to this aggregator; did you mean cleveland?",
        "mars has never connected to this aggregator",
    ]


def test_everyone_who_did_not_enrol_is_named_with_the_reason() -> None:
    view = pb.RunView(
        spec=json.dumps({"participants": ["a", "b", "c", "d", "e"]}).encode(),
        enrolled=[pb.EnrolledView(participant="a")],
        refusals=[pb.Refusal(participant="b", what="enrolment", reasons=["the rank is too large"])],
    )
    assert list(enrolment_lines(view, known(a="connected", b="connected", c="connected", d="away"))) == [
        "enrolled: a",
        "not enrolled: b (refused: the rank is too large)",
        "not enrolled: c (connected, but it has not answered; a person there may have to approve the run)",
        "not enrolled: d (not connected)",
        "not enrolled: e (never seen by this aggregator)",
    ]


def test_a_site_that_withdrew_when_it_saw_the_cohort_does_not_count_as_enrolled() -> None:
    view = pb.RunView(
        enrolled=[pb.EnrolledView(participant="a"), pb.EnrolledView(participant="b")],
        refusals=[pb.Refusal(participant="b", what="enrolment", reasons=["the cohort is too small"])],
    )
    assert list(enrolment_lines(view, known(a="connected", b="connected"))) == [
        "enrolled: a",
        "not enrolled: b (refused: the cohort is too small)",
    ]


def test_refusals_that_were_told_are_not_told_again() -> None:
    view = pb.RunView(
        reason="1 enrolled where 3 are needed; b refused: too large; or too small; c refused: no; no answer from d",
        enrolled=[pb.EnrolledView(participant="a")],
        refusals=[
            pb.Refusal(participant="b", what="enrolment", reasons=["too large", "or too small"]),
            pb.Refusal(participant="c", what="enrolment", reasons=["no"]),
        ],
    )
    sites = known(a="connected", b="connected", c="connected", d="away")
    assert list(enrolment_lines(view, sites, refusals_shown=True)) == [
        "enrolled: a",
        "not enrolled: b (refused)",
        "not enrolled: c (refused)",
        "not enrolled: d (not connected)",
    ]
    assert reason_without_refusals(view) == "1 enrolled where 3 are needed; b refused; c refused; no answer from d"
