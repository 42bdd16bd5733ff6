"""The calls in progress, by caller, so that those of a certificate that is no longer trusted can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aggregator.trust import Caller
from dcfpca.errors import BadIdentity


@dataclass(slots=True, eq=False)
class _OpenCall:
    who: Caller
    task: asyncio.Task[object]
    cut: bool = False


class OpenCalls:
    """The calls that the guard has admitted and that have not ended."""

    def __init__(self) -> None:
        self._open: set[_OpenCall] = set()

    @contextmanager
    def hold(self, who: Caller) -> Iterator[None]:
        """Count the present task's call as open; raises BadIdentity in it when it is cut."""
        task = asyncio.current_task()
        assert task is not None
        held = _OpenCall(who, task)
        self._open.add(held)
        try:
            yield
        except asyncio.CancelledError:
            # Cancelled by `cut` and by nobody else, so the caller is still connected and can be told.
            if held.cut and not task.uncancel():
                hint = "ask the holder of the CA for a new one"
                raise BadIdentity("this certificate has been revoked or has expired", hint) from None
            raise
        finally:
            self._open.discard(held)

    def cut(self, is_trusted: Callable[[Caller], bool]) -> int:
        """Cancel every call of callers that are no longer trusted; returns how many."""
        judged = {held.who.fingerprint: is_trusted(held.who) for held in self._open}
        found = [held for held in self._open if not held.cut and not judged[held.who.fingerprint]]
        for held in found:
            held.cut = True
            held.task.cancel()
        return len(found)
