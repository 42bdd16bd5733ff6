"""Every call in progress, by who makes it, so that those of a certificate that is no longer believed can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aggregator.trust import Caller
from dcfpca.errors import BadIdentity


@dataclass(slots=True, eq=False)
class _Held:
    who: Caller
    task: asyncio.Task[object]
    cut: bool = False


class OpenCalls:
    """The calls that the guard has let in and that have not ended."""

    def __init__(self) -> None:
        self._held: set[_Held] = set()

    @contextmanager
    def hold(self, who: Caller) -> Iterator[None]:
        """Count the present task's call as open; raises BadIdentity in it when it is cut."""
        task = asyncio.current_task()
        assert task is not None
        held = _Held(who, task)
        self._held.add(held)
        try:
            yield
        except asyncio.CancelledError:
            # Ours, and nobody else's as well: then the caller is still there to be told.
            if held.cut and not task.uncancel():
                hint = "ask the holder of the CA for a new one"
                raise BadIdentity("this certificate has been revoked or has expired", hint) from None
            raise
        finally:
            self._held.discard(held)

    def cut(self, is_believed: Callable[[Caller], bool]) -> int:
        """End every call of those who are not believed (any more); how many there were."""
        judged = {held.who.fingerprint: is_believed(held.who) for held in self._held}
        found = [held for held in self._held if not held.cut and not judged[held.who.fingerprint]]
        for held in found:
            held.cut = True
            held.task.cancel()
        return len(found)
