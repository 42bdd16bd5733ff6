"""The background tasks of one run, by name, so that the same work is never started twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from dcfpca.errors import DcfpcaError
from dcfpca.logs import log

Work = Callable[[], Awaitable[None]]


class NamedTasks:
    """Runs work beside the event loop's other tasks. A failure is logged and ends only the task that failed."""

    def __init__(
        self, run_id: str, note: Callable[[Exception], None] = lambda _: None, idle: Callable[[], None] = lambda: None
    ) -> None:
        """`note` is called with every exception that ends a task, `idle` whenever the last task has ended."""
        self._run_id, self._note, self._idle = run_id, note, idle
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def start(self, name: str, work: Work) -> None:
        """Start the work unless a task of this name is running."""
        if name in self._tasks:
            return
        task = asyncio.get_running_loop().create_task(self._guarded(name, work), name=f"{self._run_id} {name}")
        self._tasks[name] = task
        task.add_done_callback(partial(self._ended, name))

    def release(self, name: str) -> None:
        """Free the name while its task runs to its end, so that the task itself may start its successor."""
        self._tasks.pop(name, None)

    def cancel(self, prefix: str) -> None:
        """Cancel the tasks whose names begin with `prefix`."""
        for name in [name for name in self._tasks if name.startswith(prefix)]:
            self._tasks.pop(name).cancel()

    async def wait_for(self, name: str) -> None:
        """Return once no task of this name is running."""
        if name in self._tasks:
            await asyncio.wait([self._tasks[name]])

    async def stop(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        """Drop an ended task, unless its name belongs to a successor by now."""
        if self._tasks.get(name) is task:
            del self._tasks[name]
        if not self._tasks:
            self._idle()

    async def _guarded(self, name: str, work: Work) -> None:
        """A failure in one run must not stop the daemon: it is logged, and the run continues without this site."""
        try:
            await work()
        except DcfpcaError as error:
            self._log_failure(name, str(error), error.hint)
        except Exception as error:
            self._note(error)
            self._log_failure(name, f"{type(error).__name__}: {error}")

    def _log_failure(self, name: str, reason: str, hint: str = "") -> None:
        log("action_failed", level="error", run=self._run_id, what=name, reason=reason, hint=hint or None)
