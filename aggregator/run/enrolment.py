"""Enrolment: answers to the proposal, closing, withdrawals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aggregator.run.attempts import ACCEPTED, DUPLICATE, Reply, Step
from aggregator.run.events import Responded
from aggregator.run.state import Consent, Run, Status, ended, refusals_text
from dcfpca.secagg.differencing_check import PastRun, exposure
from dcfpca.wire.receipt import Fate

if TYPE_CHECKING:
    from aggregator.run.rules import RoundRules
    from dcfpca.spec import RunSpec


def respond(rules: RoundRules, run: Run, event: Responded) -> Step:
    """Record an answer; the first one stands, but an enrolled participant may withdraw at any time."""
    spec, who = rules.spec, event.participant
    if who in run.enrolled:
        return (run, (DUPLICATE,)) if event.accept else _withdraw(rules, run, event)
    if who in run.refusals:
        return run, (Reply(Fate.REJECTED, "this participant has refused the run before; the first answer stands"),)
    if run.status is not Status.ENROLLING:
        return run, (Reply(Fate.LATE, "enrolment in this run is closed"),)
    if spec.participants and who not in spec.participants:
        return run, (Reply(Fate.REJECTED, "this run has a fixed cohort, and this participant is not in it"),)
    run = _with_answer(run, event)
    if spec.participants and len(run.enrolled) + len(run.refusals) == len(spec.participants):
        run, effects = close(rules, run, event.at)
        return run, (ACCEPTED, *effects)
    return run, (ACCEPTED,)


def close(rules: RoundRules, run: Run, at: float) -> Step:
    """Fix the cohort and open round 0, or fail with the reasons when too few enrolled."""
    spec, needed = rules.spec, fewest_enrolled(rules)
    if len(run.enrolled) < needed:
        reason = f"{len(run.enrolled)} enrolled where {needed} are needed{refusals_text(spec, run)}"
        return ended(run, Status.FAILED, reason, at), ()
    cohort = tuple(sorted(run.enrolled))
    width = spec.quorum_of(len(cohort))
    if width > len(cohort):
        reason = f"a cohort of {len(cohort)} cannot reach the quorum of {width}"
        return ended(run, Status.FAILED, reason, at), ()
    run = replace(run, status=Status.RUNNING, cohort=cohort, reason="", restarted_at=0.0)
    return rules.begin(run, at), ()


def fewest_enrolled(rules: RoundRules) -> int:
    """The smallest number of enrolments with which the run begins."""
    spec = rules.spec
    if spec.participants:
        return spec.quorum_of(len(spec.participants))
    return max(spec.quorum or 1, spec.least_cohort)


def away_members(spec: RunSpec, run: Run, last: PastRun, connected: frozenset[str]) -> frozenset[str]:
    """The members of the last run who are away, if the others alone would refuse this run for its difference to that.

    Sites decide by all runs that they know and by their own policy; this is what the last one alone leads to.
    """
    cohort = (connected | run.enrolled.keys()) - run.refusals.keys()
    away = last.cohort - connected - run.enrolled.keys() - run.refusals.keys()
    return away if away and exposure([last], cohort, spec.least_cohort) else frozenset()


def _withdraw(rules: RoundRules, run: Run, event: Responded) -> Step:
    """Take an enrolled participant out; a secure run pauses then, and a plain one fails when the rest are too few."""
    if run.status.over or event.participant in run.refusals:
        return run, (DUPLICATE,)
    refusals = {**run.refusals, event.participant: event.reasons}
    run = replace(run, refusals=refusals, absent=run.absent | {event.participant})
    if run.status is Status.ENROLLING:
        enrolled = {name: consent for name, consent in run.enrolled.items() if name != event.participant}
        return replace(run, enrolled=enrolled), (ACCEPTED,)
    run, effects = rules.withdrawn(run, event)
    return run, (ACCEPTED, *effects)


def _with_answer(run: Run, event: Responded) -> Run:
    if event.accept:
        consent = Consent(event.private, event.signature, event.fingerprint)
        return replace(run, enrolled={**run.enrolled, event.participant: consent})
    return replace(run, refusals={**run.refusals, event.participant: event.reasons})
