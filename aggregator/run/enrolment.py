"""Enrolment: answers to the proposal, closing, withdrawals."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from aggregator.run import fixed_cohort, fixed_cohort_rounds
from aggregator.run.effects import ACCEPTED, DUPLICATE, Discard, Effect, Reply
from aggregator.run.events import Responded
from aggregator.run.phases import open_attempt, progress
from aggregator.run.records import Consent
from aggregator.run.state import Run, Status, ended
from dcfpca.message_fate import Fate
from dcfpca.methods import method_of
from dcfpca.spec import RunSpec

Step = tuple[Run, tuple[Effect, ...]]


def respond(spec: RunSpec, run: Run, event: Responded) -> Step:
    """Record an answer; the first one stands, but an enrolled participant may withdraw at any time."""
    who = event.participant
    if who in run.enrolled:
        return (run, (DUPLICATE,)) if event.accept else withdraw(spec, run, event)
    if who in run.refusals:
        return run, (Reply(Fate.REJECTED, "this participant has refused the run before; the first answer stands"),)
    if run.status is not Status.ENROLLING:
        return run, (Reply(Fate.LATE, "enrolment in this run is closed"),)
    if spec.participants and who not in spec.participants:
        return run, (Reply(Fate.REJECTED, "this run has a fixed cohort, and this participant is not in it"),)
    run, effects = close_if_answered(spec, _with_answer(run, event), event.at)
    return run, (ACCEPTED, *effects)


def close_if_answered(spec: RunSpec, run: Run, at: float) -> Step:
    """Close the enrolment of a fixed cohort once every named participant has answered."""
    answered = len(run.enrolled) + len(run.refusals)
    if spec.participants and answered == len(spec.participants):
        return close(spec, run, at)
    return run, ()


def close(spec: RunSpec, run: Run, at: float) -> Step:
    """Fix the cohort and open round 0, or fail with the reasons when too few enrolled."""
    needed = fewest_enrolled(spec)
    if len(run.enrolled) < needed:
        reason = f"{len(run.enrolled)} enrolled where {needed} are needed{_because(spec, run)}"
        return ended(run, Status.FAILED, reason, at), ()
    cohort = tuple(sorted(run.enrolled))
    width = spec.quorum_of(len(cohort))
    if width > len(cohort):
        reason = f"a cohort of {len(cohort)} cannot reach the quorum of {width}"
        return ended(run, Status.FAILED, reason, at), ()
    fixed = fixed_cohort.begin(spec) if spec.waits else None
    run = replace(run, status=Status.RUNNING, cohort=cohort, reason="", restarted_at=0.0, fixed_cohort=fixed)
    return open_attempt(spec, run, 0, 1, at, consensus=_first_consensus(spec)), ()


def _first_consensus(spec: RunSpec) -> bytes:
    """SHA-256 of the consensus of round 0, as it is sent; a warm start changes the method's memory alone."""
    vector = method_of(spec).begin().broadcast.flat()
    return hashlib.sha256(vector.astype("<f8").tobytes()).digest()


def fewest_enrolled(spec: RunSpec) -> int:
    """The smallest number of enrolments with which the run begins."""
    if spec.participants:
        return spec.quorum_of(len(spec.participants))
    # With two, the sum minus one's own update is the other's update.
    return max(spec.quorum or 1, 3 if spec.aggregation == "secure" else 1)


def withdraw(spec: RunSpec, run: Run, event: Responded) -> Step:
    """Take an enrolled participant out; the run fails, or pauses if it needs everybody, when the rest are too few."""
    if run.status.over or event.participant in run.refusals:
        return run, (DUPLICATE,)
    refusals = {**run.refusals, event.participant: event.reasons}
    run = replace(run, refusals=refusals, absent=run.absent | {event.participant})
    if run.status is Status.ENROLLING:
        enrolled = {name: consent for name, consent in run.enrolled.items() if name != event.participant}
        return replace(run, enrolled=enrolled), (ACCEPTED,)
    if run.fixed_cohort is not None:
        return fixed_cohort_rounds.withdrawn(spec, run, event.participant, event.reasons), (ACCEPTED,)
    left = [name for name in run.cohort if name not in refusals]
    if len(left) < spec.quorum_of(len(run.cohort)):
        gone = (Discard(run.attempt.ref),) if run.attempt else ()
        reason = f"too few are left for a quorum{_because(spec, run)}"
        return ended(run, Status.FAILED, reason, event.at), (ACCEPTED, *gone)
    run, effects = progress(spec, run)
    return run, (ACCEPTED, *effects)


def _with_answer(run: Run, event: Responded) -> Run:
    if event.accept:
        consent = Consent(event.private, event.signature, event.fingerprint)
        return replace(run, enrolled={**run.enrolled, event.participant: consent})
    return replace(run, refusals={**run.refusals, event.participant: event.reasons})


def _because(spec: RunSpec, run: Run) -> str:
    refused = [f"{name} refused: {'; '.join(reasons)}" for name, reasons in sorted(run.refusals.items())]
    unheard = sorted(set(spec.participants) - set(run.enrolled) - set(run.refusals))
    silent = [f"no answer from {', '.join(unheard)}"] if unheard else []
    return "".join(f"; {text}" for text in refused + silent)
