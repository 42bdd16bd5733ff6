"""Fault injection for the demo: kills a site and the aggregator during the run, and restarts both."""

from __future__ import annotations

from collections.abc import Callable

from dcfpca.demo.federation import AGGREGATOR, Federation
from dcfpca.text.run_history import RunHistory

_AFTER_ROUND = 2


class FaultInjector:
    """Kills the victim after round 2 and the aggregator while it waits for it, and reports through `say` what it did
    and what followed."""

    def __init__(self, federation: Federation, victim: str, say: Callable[[str], None]) -> None:
        self._federation = federation
        self._victim = victim
        self._say = say
        self._awaited_in = 0
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
        self._say(f"{self._victim} was killed (SIGKILL) in round {history.view.round}")
        self._next = self._restart_both

    def _restart_both(self, history: RunHistory) -> None:
        if self._victim not in [one.participant for one in history.view.waiting]:
            return
        self._awaited_in = history.view.round
        self._federation.children[AGGREGATOR].kill()
        self._say("the aggregator was killed (SIGKILL), too; both are started again")
        self._federation.restart_aggregator()
        self._federation.children.restart(self._victim)
        self._next = self._report_return

    def _report_return(self, history: RunHistory) -> None:
        if history.last_round < self._awaited_in:
            return
        self._say(f"{self._victim} came back where it was; round {self._awaited_in} has the sum over all sites")
        self._next = None
