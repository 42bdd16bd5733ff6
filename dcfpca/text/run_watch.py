"""Follows a run to its end and shows it, through restarts of the aggregator."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from dcfpca.errors import Refused, Unreachable
from dcfpca.operator.client import Operator
from dcfpca.operator.status_errors import is_lost
from dcfpca.text.run_history import OVER, RunHistory
from dcfpca.text.run_progress import RunProgress
from dcfpca.text.silence_watchdog import SilenceWatchdog
from dcfpca.v1 import admin_pb2 as pb

AT_REST = OVER | {"paused"}
"""Statuses that a run keeps until an operator acts."""

_SILENCE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to try to reconnect, and the shortest and longest pause between attempts."""

    seconds: float = 600.0
    first_pause: float = 0.2
    longest_pause: float = 5.0


class RunWatch:
    """Reads the views of one run; after a lost connection it asks only for the rounds it lacks."""

    def __init__(
        self, operator: Operator, run_id: str, progress: RunProgress, retry: RetryPolicy | None = None
    ) -> None:
        self._operator = operator
        self._run_id = run_id
        self._progress = progress
        self._retry = retry or RetryPolicy()
        self._lost_at: float | None = None

    def follow(self, on_update: Callable[[RunHistory], None] | None = None) -> pb.RunView:
        """Show the run until it is over or paused; returns its last view with all rounds.

        Raises Unreachable when the connection stays lost for longer than the retry policy allows.
        """
        pause = self._retry.first_pause
        with SilenceWatchdog(self._progress.report_silence, _SILENCE_SECONDS) as watchdog:
            while True:
                try:
                    for view in self._operator.watch(self._run_id, self._progress.history.last_round):
                        pause = self._retry.first_pause
                        self._take(view, watchdog)
                        if on_update:
                            on_update(self._progress.history)
                        if view.status in AT_REST:
                            return self._progress.history.complete_view()
                except grpc.RpcError as error:
                    self._raise_if_final(error)
                self._note_lost()
                watchdog.reset()
                time.sleep(pause)
                pause = min(pause * 2, self._retry.longest_pause)

    def _take(self, view: pb.RunView, watchdog: SilenceWatchdog) -> None:
        watchdog.reset()
        if self._lost_at is not None:
            self._progress.note("connected again")
        self._lost_at = None
        self._progress.update(view)

    def _raise_if_final(self, error: grpc.RpcError) -> None:
        """A refusal is final; so is a lost connection before the first view, when the address may be wrong."""
        if not is_lost(error) or not self._progress.history.view.run_id:
            raise error

    def _note_lost(self) -> None:
        now = time.monotonic()
        if self._lost_at is None:
            self._lost_at = now
            self._progress.note("the connection to the aggregator was lost; trying again")
        elif now - self._lost_at > self._retry.seconds:
            sentence = f"the aggregator could not be reached for {self._retry.seconds:g} s; the watch ends"
            raise Unreachable(
                sentence, f"the run is not affected: watch it again with `dcfpca run watch {self._run_id}`"
            )


def raise_unless_finished(view: pb.RunView, hint: str = "") -> None:
    """Raise Refused with the run's reason unless the run has finished; `hint` replaces the usual one."""
    match view.status:
        case "finished":
            return
        case "paused":
            resume = f"when the cause is removed: `dcfpca run resume {view.run_id}`"
            usual = f"{resume}; to end it with the consensus it has: `dcfpca run finish {view.run_id}`"
            raise Refused(f"run {view.run_id} is paused: {view.reason}", hint or usual)
        case _:
            raise Refused(f"run {view.run_id} {view.status}: {view.reason or 'no reason was given'}", hint)
