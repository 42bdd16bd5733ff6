"""What goes wrong in the demo, on purpose: a site and the aggregator are killed in mid-run and started again."""

from __future__ import annotations

from collections.abc import Callable

from dcfpca.demo.federation import AGGREGATOR, Federation
from dcfpca.text.time_left import Seen

_AFTER_ROUND = 2


class Mishaps:
    """Watches the run, and strikes when its time has come. Says what it did and what came of it."""

    def __init__(self, federation: Federation, victim: str, say: Callable[[str], None]) -> None:
        self._federation = federation
        self._victim = victim
        self._say = say
        self._next: Callable[[Seen], None] | None = self._kill_site

    def look(self, seen: Seen) -> None:
        """Called with every view of the run."""
        if self._next and seen.view.status == "running":
            self._next(seen)

    def repair(self) -> None:
        """Start the victim again where the run ended before that came about."""
        if self._federation.children[self._victim].killed:
            self._federation.children.restart(self._victim)

    def _kill_site(self, seen: Seen) -> None:
        if seen.last_round < _AFTER_ROUND:
            return
        self._federation.children[self._victim].kill()
        self._say(f"{self._victim} was killed (SIGKILL) in round {seen.view.round}; the others go on without it")
        self._next = self._kill_aggregator

    def _kill_aggregator(self, seen: Seen) -> None:
        if self._victim not in seen.rounds[seen.last_round].dropouts:
            return
        self._federation.children.restart(self._victim)
        self._say(f"{self._victim} is started again")
        self._federation.children[AGGREGATOR].kill()
        self._say(f"the aggregator was killed (SIGKILL) in round {seen.view.round} and is started again")
        self._federation.restart_aggregator()
        self._next = self._welcome_back

    def _welcome_back(self, seen: Seen) -> None:
        if self._victim not in seen.rounds[seen.last_round].survivors:
            return
        self._say(f"{self._victim} takes part again in round {seen.last_round}")
        self._next = None
