"""Follows a run to its end and shows it, across restarts of the aggregator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from dcfpca.errors import Refused
from dcfpca.operator.client import Operator
from dcfpca.operator.run_stream import RetryPolicy, run_views
from dcfpca.text.run_progress import RunHistory, RunProgress
from dcfpca.text.run_views import reason_without_refusals
from dcfpca.v1 import admin_pb2 as pb

_SILENCE_SECONDS = 15.0


class RunWatch:
    """Reads the views of one run; after a lost connection it asks only for the rounds it lacks."""

    def __init__(
        self, operator: Operator, run_id: str, progress: RunProgress, retry: RetryPolicy | None = None
    ) -> None:
        self._operator = operator
        self._run_id = run_id
        self._progress = progress
        self._retry = retry or RetryPolicy()
        self._lost = False

    def follow(self, on_update: Callable[[RunHistory], None] | None = None) -> pb.RunView:
        """Show the run until it is over or paused; returns its last view with all rounds.

        Raises Unreachable when the connection stays lost for longer than the retry policy allows.
        """
        with SilenceWatchdog(self._progress.report_silence, _SILENCE_SECONDS) as watchdog:

            def lost() -> None:
                self._note_lost()
                watchdog.reset()

            # Once a view was shown the address is known to be right, and a lost connection is waited for.
            seen = self._progress.history
            retry = replace(self._retry, from_start=self._retry.from_start or bool(seen.view.run_id))
            news = run_views(self._operator, self._run_id, retry, after_round=seen.last_round, on_lost=lost)
            for view in news:
                watchdog.reset()
                self._take(view)
                if on_update:
                    on_update(self._progress.history)
        return self._progress.history.complete_view()

    def _take(self, view: pb.RunView) -> None:
        if self._lost:
            self._progress.note("connected again")
        self._lost = False
        self._progress.update(view)

    def _note_lost(self) -> None:
        self._lost = True
        self._progress.note("the connection to the aggregator was lost; trying again")


def raise_unless_finished(view: pb.RunView, hint: str = "") -> None:
    """Raise Refused with the run's reason unless the run has finished; `hint` replaces the usual one.

    Whoever watched the run has seen each refusal, so the reason only names who refused.
    """
    reason = reason_without_refusals(view)
    match view.status:
        case "finished":
            return
        case "paused":
            resume = f"when the cause is removed: `dcfpca run resume {view.run_id}`"
            usual = f"{resume}; to end it: `dcfpca run finish` with what it has, `dcfpca run abort` without a result"
            raise Refused(f"run {view.run_id} is paused: {reason}", hint or usual)
        case _:
            raise Refused(f"run {view.run_id} {view.status}: {reason or 'no reason was given'}", hint)


class SilenceWatchdog(AbstractContextManager["SilenceWatchdog"]):
    """Calls `report` with the seconds since the last `reset`, every `every` seconds, from a thread of its own."""

    def __init__(self, report: Callable[[float], None], every: float) -> None:
        self._report = report
        self._every = every
        self._last_reset = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="silence-watchdog", daemon=True)

    def __enter__(self) -> SilenceWatchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def reset(self) -> None:
        """Start counting again from now."""
        self._last_reset = time.monotonic()

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            silence = time.monotonic() - self._last_reset
            if silence >= self._every:
                self._report(silence)
