"""Following a run to its end, through restarts of the aggregator."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from dcfpca.errors import DcfpcaError, Refused, Unreachable
from dcfpca.operator.client import Operator
from dcfpca.operator.status_errors import is_lost
from dcfpca.text.run_progress import Progress
from dcfpca.text.silence_reminder import Reminder
from dcfpca.text.time_left import OVER, Seen
from dcfpca.v1 import admin_pb2 as pb

SETTLED = OVER | {"paused"}
"""Statuses in which a run stays until somebody does something."""

_SILENCE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try again after the connection broke, and how often."""

    seconds: float = 600.0
    first_pause: float = 0.2
    longest_pause: float = 5.0


class Watch:
    """Reads the views of one run; after a break it asks only for what it has not seen."""

    def __init__(self, operator: Operator, run_id: str, progress: Progress, patience: Patience | None = None) -> None:
        self._operator = operator
        self._run_id = run_id
        self._progress = progress
        self._patience = patience or Patience()
        self._lost_at: float | None = None

    def follow(self, each: Callable[[Seen], None] | None = None) -> pb.RunView:
        """Show the run until it is over or paused; returns its last view with all rounds."""
        pause = self._patience.first_pause
        with Reminder(self._progress.remind, _SILENCE_SECONDS) as reminder:
            while True:
                try:
                    for view in self._operator.watch(self._run_id, self._progress.seen.last_round):
                        pause = self._patience.first_pause
                        self._hear(view, reminder)
                        if each:
                            each(self._progress.seen)
                        if view.status in SETTLED:
                            return self._progress.seen.whole()
                except grpc.RpcError as error:
                    self._raise_if_final(error)
                self._note_lost()
                reminder.heard()
                time.sleep(pause)
                pause = min(pause * 2, self._patience.longest_pause)

    def _hear(self, view: pb.RunView, reminder: Reminder) -> None:
        reminder.heard()
        if self._lost_at is not None:
            self._progress.note("connected again")
        self._lost_at = None
        self._progress.update(view)

    def _raise_if_final(self, error: grpc.RpcError) -> None:
        """A refusal is final, and so is an aggregator that was never there."""
        if not is_lost(error) or not self._progress.seen.view.run_id:
            raise error

    def _note_lost(self) -> None:
        now = time.monotonic()
        if self._lost_at is None:
            self._lost_at = now
            self._progress.note("the connection to the aggregator was lost; trying again")
        elif now - self._lost_at > self._patience.seconds:
            sentence = f"the aggregator has been away for {self._patience.seconds:g} s; the watch gives up"
            raise Unreachable(sentence, f"the run is not lost: `dcfpca run watch {self._run_id}` takes it up again")


def unless_finished(view: pb.RunView) -> DcfpcaError | None:
    """The error that a run's end stands for; None where it finished."""
    match view.status:
        case "finished":
            return None
        case "paused":
            hint = f"when the cause is gone: `dcfpca run resume {view.run_id}`"
            return Refused(f"run {view.run_id} is paused: {view.reason}", hint)
        case _:
            return Refused(f"run {view.run_id} {view.status}: {view.reason or 'no reason was given'}")
