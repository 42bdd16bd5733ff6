"""Fault injection for the demo: kills a site and the aggregator during the run, and restarts both."""

from __future__ import annotations

from collections.abc import Callable

from dcfpca.demo.federation import AGGREGATOR, Federation
from dcfpca.text.run_history import RunHistory

_AFTER_ROUND = 2


class FaultInjector:
    """Kills the victim after round 2, then the aggregator, and reports through `say` what it did and what followed."""

    def __init__(self, federation: Federation, victim: str, say: Callable[[str], None]) -> None:
        self._federation = federation
        self._victim = victim
        self._say = say
        self._next: Callable[[RunHistory], None] | None = self._kill_site

    def on_update(self, history: RunHistory) -> None:
        """Take the next step if its condition holds; called at every view of the run."""
        if self._next and history.view.status == "running":
            self._next(history)

    def restart_victim(self) -> None:
        """Restart the victim if the run ended while it was down."""
        if self._federation.children[self._victim].killed:
            self._federation.children.restart(self._victim)

    def _kill_site(self, history: RunHistory) -> None:
        if history.last_round < _AFTER_ROUND:
            return
        self._federation.children[self._victim].kill()
        self._say(f"{self._victim} was killed (SIGKILL) in round {history.view.round}; the others go on without it")
        self._next = self._kill_aggregator

    def _kill_aggregator(self, history: RunHistory) -> None:
        if self._victim not in history.rounds[history.last_round].dropouts:
            return
        self._federation.children.restart(self._victim)
        self._say(f"{self._victim} is started again")
        self._federation.children[AGGREGATOR].kill()
        self._say(f"the aggregator was killed (SIGKILL) in round {history.view.round} and is started again")
        self._federation.restart_aggregator()
        self._next = self._report_return

    def _report_return(self, history: RunHistory) -> None:
        if self._victim not in history.rounds[history.last_round].survivors:
            return
        self._say(f"{self._victim} takes part again in round {history.last_round}")
        self._next = None
