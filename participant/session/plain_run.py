"""A site's part in a plain run, whose updates the aggregator sees one by one: nothing is masked, and nothing pinned."""

from __future__ import annotations

from dcfpca.errors import BadMessage
from dcfpca.secagg.errors import SecureSumRefusal
from dcfpca.spec import RunSpec
from participant.policy import SiteFacts
from participant.review import check_cohort
from participant.session.actions import Action
from participant.session.events import Answered, Opened, Restored


class PlainRun:
    """One plain run at one site. Its rounds may be tried again, and go on without members that are away."""

    def __init__(self, spec: RunSpec, site: SiteFacts) -> None:
        self._spec, self._site = spec, site
        self._cohort: tuple[str, ...] = ()

    def restore(self, event: Restored) -> None:
        """Nothing: a plain run has no keys to take up again."""

    def check_announced(self, event: Opened, before: Opened | None) -> tuple[str, ...]:
        """Why the site withdraws instead of answering this round; empty when it answers.

        Raises BadMessage when the cohort grew, a round has a second, different consensus, or is beyond the last.
        `before` is the latest announcement of the run. The cohort is that of the first one.
        """
        if event.ref.round > self._spec.last_round:
            raise BadMessage(f"round {event.ref.round} is beyond the last of the spec, {self._spec.last_round}")
        if self._cohort and (added := sorted(set(event.cohort) - set(self._cohort))):
            raise BadMessage(f"the cohort grew after the run began: {', '.join(added)}")
        if before and before.ref.round == event.ref.round and before.consensus.sha256 != event.consensus.sha256:
            raise BadMessage(f"a second, different consensus was announced for round {event.ref.round}")
        self._cohort = self._cohort or event.cohort
        return check_cohort(self._spec, self._site, event.cohort)

    def lost_answer(self, event: Opened, before: Opened) -> bool:
        """False: a plain round is announced to everybody, whether their update was accepted or not."""
        return False

    def adopt(self, event: Answered) -> None:
        """Nothing is pinned: a plain attempt has no secrets and only one possible answer."""

    def complain(self, error: SecureSumRefusal) -> tuple[Action, ...]:
        """Nothing: a plain run has no complaints."""
        return ()

    def finish(self) -> None:
        """The run is over; a plain one has no secrets to drop."""

    def forget(self) -> None:
        """As `finish`."""
