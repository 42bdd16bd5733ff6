"""Where the rounds of secure and plain runs differ: one set of rules for each, chosen by the spec and nowhere else."""

from __future__ import annotations

from typing import Protocol

from aggregator.run import events
from aggregator.run.attempts import Step
from aggregator.run.plain_rounds import PlainRounds
from aggregator.run.secure_rounds import SecureRounds
from aggregator.run.state import Run, Status
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms


class RoundRules(Protocol):
    """What an event of an open round does to a run. The event is in turn where its method does not say otherwise."""

    def begin(self, terms: Terms, run: Run, at: float) -> Run:
        """The run, whose cohort was enrolled just now, with its first attempt open."""

    def deadline(self, spec: RunSpec, run: Run) -> float | None:
        """When something is due in the open round; None while nothing is awaited from participants."""

    def awaited(self, run: Run) -> tuple[str, ...]:
        """Whose answer the run waits for now."""

    def receive(self, spec: RunSpec, run: Run, event: events.UpdateReceived) -> Step:
        """An update arrived, in turn or not."""

    def left(self, spec: RunSpec, run: Run, event: events.Left) -> Step:
        """A member's connection has been closed for longer than the grace period."""

    def joined(self, spec: RunSpec, run: Run, event: events.Joined) -> Step:
        """A member, which is not counted as absent any more, connected again."""

    def withdrawn(self, spec: RunSpec, run: Run, event: events.Responded) -> Step:
        """A member, which is among the refusals by now, withdrew."""

    def next_round(self, spec: RunSpec, run: Run, event: events.ConsensusReached) -> Run:
        """The sum of the open round led to a consensus that does not end the run."""

    def sum_failed(self, spec: RunSpec, run: Run, event: events.SumFailed) -> Step:
        """The sum of the open round cannot be used."""

    def updates_lost(self, spec: RunSpec, run: Run, event: events.UpdatesLost) -> Step:
        """Accepted updates are gone from the disk."""

    def overdue(self, spec: RunSpec, run: Run, at: float) -> Step:
        """The deadline passed."""

    def resumed(self, spec: RunSpec, run: Run, at: float) -> Step:
        """An operator resumed the run, which is running again."""


_SECURE, _PLAIN = SecureRounds(), PlainRounds()


def rules_of(spec: RunSpec) -> RoundRules:
    """The rules of the rounds of a run of this spec."""
    return _PLAIN if spec.aggregation == "plain" else _SECURE


def deadline(spec: RunSpec, run: Run) -> float | None:
    """When enrolment closes, or something is due in the open round; None while nothing is awaited from participants.

    After a restart it is extended, so that participants have the time to reconnect.
    """
    if run.status is not Status.ENROLLING:
        return rules_of(spec).deadline(spec, run)
    patience = min(spec.enrol_seconds, spec.round_seconds) if run.restarted_at else 0.0
    return max(run.created_at + spec.enrol_seconds, run.restarted_at + patience)


def awaited(spec: RunSpec, run: Run) -> tuple[str, ...]:
    """Whose answer the run waits for now; nobody unless it is running."""
    return rules_of(spec).awaited(run) if run.status is Status.RUNNING else ()
