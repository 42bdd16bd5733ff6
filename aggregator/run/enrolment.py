"""Enrolment: answers to the proposal, closing, withdrawals."""

from __future__ import annotations

from dataclasses import replace

from aggregator.run.attempts import Step
from aggregator.run.effects import ACCEPTED, DUPLICATE, Reply
from aggregator.run.events import Responded
from aggregator.run.round_rules import rules_of
from aggregator.run.state import Consent, Run, Status, ended, refusals_told
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms
from dcfpca.wire.receipt import Fate


def respond(terms: Terms, run: Run, event: Responded) -> Step:
    """Record an answer; the first one stands, but an enrolled participant may withdraw at any time."""
    spec, who = terms.spec, event.participant
    if who in run.enrolled:
        return (run, (DUPLICATE,)) if event.accept else withdraw(spec, run, event)
    if who in run.refusals:
        return run, (Reply(Fate.REJECTED, "this participant has refused the run before; the first answer stands"),)
    if run.status is not Status.ENROLLING:
        return run, (Reply(Fate.LATE, "enrolment in this run is closed"),)
    if spec.participants and who not in spec.participants:
        return run, (Reply(Fate.REJECTED, "this run has a fixed cohort, and this participant is not in it"),)
    run, effects = close_if_answered(terms, _with_answer(run, event), event.at)
    return run, (ACCEPTED, *effects)


def close_if_answered(terms: Terms, run: Run, at: float) -> Step:
    """Close the enrolment of a fixed cohort once every named participant has answered."""
    answered = len(run.enrolled) + len(run.refusals)
    if terms.spec.participants and answered == len(terms.spec.participants):
        return close(terms, run, at)
    return run, ()


def close(terms: Terms, run: Run, at: float) -> Step:
    """Fix the cohort and open round 0, or fail with the reasons when too few enrolled."""
    spec = terms.spec
    needed = fewest_enrolled(spec)
    if len(run.enrolled) < needed:
        reason = f"{len(run.enrolled)} enrolled where {needed} are needed{refusals_told(spec, run)}"
        return ended(run, Status.FAILED, reason, at), ()
    cohort = tuple(sorted(run.enrolled))
    width = spec.quorum_of(len(cohort))
    if width > len(cohort):
        reason = f"a cohort of {len(cohort)} cannot reach the quorum of {width}"
        return ended(run, Status.FAILED, reason, at), ()
    run = replace(run, status=Status.RUNNING, cohort=cohort, reason="", restarted_at=0.0)
    return rules_of(spec).begin(terms, run, at), ()


def fewest_enrolled(spec: RunSpec) -> int:
    """The smallest number of enrolments with which the run begins."""
    if spec.participants:
        return spec.quorum_of(len(spec.participants))
    return max(spec.quorum or 1, spec.least_cohort)


def withdraw(spec: RunSpec, run: Run, event: Responded) -> Step:
    """Take an enrolled participant out; a secure run pauses then, and a plain one fails when the rest are too few."""
    if run.status.over or event.participant in run.refusals:
        return run, (DUPLICATE,)
    refusals = {**run.refusals, event.participant: event.reasons}
    run = replace(run, refusals=refusals, absent=run.absent | {event.participant})
    if run.status is Status.ENROLLING:
        enrolled = {name: consent for name, consent in run.enrolled.items() if name != event.participant}
        return replace(run, enrolled=enrolled), (ACCEPTED,)
    run, effects = rules_of(spec).withdrawn(spec, run, event)
    return run, (ACCEPTED, *effects)


def _with_answer(run: Run, event: Responded) -> Run:
    if event.accept:
        consent = Consent(event.private, event.signature, event.fingerprint)
        return replace(run, enrolled={**run.enrolled, event.participant: consent})
    return replace(run, refusals={**run.refusals, event.participant: event.reasons})
