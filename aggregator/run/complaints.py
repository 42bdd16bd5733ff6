"""What sites complain of: kept with the run for its operators, and a reason to pause while the set-up lasts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from aggregator.run import events
from aggregator.run.effects import ACCEPTED, DUPLICATE, Effect, Reply
from aggregator.run.records import StoredComplaint
from aggregator.run.state import Run, Status, paused
from dcfpca.message_fate import Fate

Step = tuple[Run, tuple[Effect, ...]]

MOST_COMPLAINTS = 20
"""How many are kept; beyond that the oldest of whoever complained most is dropped."""


def receive(run: Run, event: events.Complained) -> Step:
    """Keep a complaint whose signature was checked. One that names a member before its author is set up pauses."""
    if event.participant not in run.cohort:
        return run, (Reply(Fate.REJECTED, "this participant is not in the run's cohort"),)
    complaint = StoredComplaint(
        event.participant,
        event.accused,
        event.error,
        event.sentence,
        event.at,
        event.certificate,
        event.signature,
    )
    if any(replace(one, at=event.at) == complaint for one in run.complaints):
        return run, (DUPLICATE,)
    run = replace(run, complaints=_bounded((*run.complaints, complaint)))
    return (_accused(run, complaint) if event.accused else run), (ACCEPTED,)


def _accused(run: Run, complaint: StoredComplaint) -> Run:
    """In the set-up nobody can go on without the accused; later the sum does not depend on its goodwill."""
    fixed = run.fixed_cohort
    if fixed is None or run.status is not Status.RUNNING or complaint.participant in fixed.ready:
        return run
    return paused(run, f"{complaint.participant} accuses {complaint.accused}: {complaint.sentence}")


def _bounded(complaints: tuple[StoredComplaint, ...]) -> tuple[StoredComplaint, ...]:
    if len(complaints) <= MOST_COMPLAINTS:
        return complaints
    ((loudest, _),) = Counter(one.participant for one in complaints).most_common(1)
    oldest = next(place for place, one in enumerate(complaints) if one.participant == loudest)
    return complaints[:oldest] + complaints[oldest + 1 :]
