"""Who takes part in a run and who does not, and why. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from dcfpca.errors import did_you_mean
from dcfpca.v1 import admin_pb2 as pb


def unknown_names(wanted: Sequence[str], known: Sequence[pb.ParticipantView]) -> Iterator[str]:
    """A sentence for every participant of the spec that the aggregator has never seen."""
    names = [one.name for one in known]
    for name in wanted:
        if name not in names:
            sentence = f"{name} has never connected to this aggregator"
            suggestion = did_you_mean(name, names)
            yield f"{sentence}; {suggestion}" if suggestion else sentence


def enrolment_lines(
    view: pb.RunView, known: Sequence[pb.ParticipantView], refusals_shown: bool = False
) -> Iterator[str]:
    """Who has enrolled, and for everyone else that the spec names (or that is known, if it names none) why not.

    Where the refusals were shown before, sites that refused are named without their reasons.
    """
    states = {one.name: one.state for one in known}
    refusals = {one.participant: "; ".join(one.reasons) for one in view.refusals if one.what == "enrolment"}
    # A site that sees the cohort may withdraw after it has enrolled.
    enrolled = [one.participant for one in view.enrolled if one.participant not in refusals]
    yield f"enrolled: {', '.join(enrolled) or 'nobody'}"
    for name in json.loads(view.spec or b"{}").get("participants") or sorted(states):
        if name not in enrolled:
            why = "refused" if refusals_shown and name in refusals else _why(name, refusals, states)
            yield f"not enrolled: {name} ({why})"


def reason_without_refusals(view: pb.RunView) -> str:
    """The run's reason where the refusals that it quotes were told before: who refused, without their reasons."""
    reason = view.reason
    for one in view.refusals:
        reason = reason.replace(f"{one.participant} refused: {'; '.join(one.reasons)}", f"{one.participant} refused")
    return reason


def _why(name: str, refusals: dict[str, str], states: dict[str, str]) -> str:
    if name in refusals:
        return f"refused: {refusals[name]}"
    match states.get(name):
        case None:
            return "never seen by this aggregator"
        case "connected":
            return "connected, but it has not answered; a person there may have to approve the run"
        case "revoked":
            return "turned away: its certificate is revoked"
        case _:
            return "not connected"
