"""The arithmetic of a run in motion: the running sum, and the consensus that follows from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from threadpoolctl import ThreadpoolController

from aggregator.run import events
from aggregator.run.effects import Sum
from aggregator.run.state import Round, Run
from aggregator.running_sum import RunningSum, UnusableSum, next_consensus
from aggregator.store.store import Store
from aggregator.store.update_files import UploadKey
from dcfpca import secagg
from dcfpca.errors import BadInput, DcfpcaError
from dcfpca.logs import log
from dcfpca.rpca.method import Consensus, Method
from dcfpca.spec import RunSpec
from dcfpca.v1.admin_pb2 import RoundView

if TYPE_CHECKING:
    from aggregator.runner import Runner

INLINE_BYTES = 1 << 19
"""Up to this size the event loop has the next consensus sooner than a thread that it shares the interpreter with."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A consensus that has been computed but is not yet durable, with the finished round as people see it."""

    round: int
    attempt: int
    consensus: Consensus
    view: RoundView


class Summing:
    """Adds updates as they come, and turns the sum into the next consensus."""

    def __init__(self, spec: RunSpec, method: Method, consensus: Consensus) -> None:
        self._spec, self._method = spec, method
        self.consensus = consensus
        self.finished: RoundView | None = None
        self._running: RunningSum | None = None
        self._pending: Reached | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, round: int, offset: int, data: bytes) -> None:
        """Add a piece of an accepted update."""
        if self._running is None:
            self._running = RunningSum(self._spec, self._method.update_layout(round))
        self._running.add(offset, data)

    def add_stored(self, store: Store, key: UploadKey) -> None:
        """Add an accepted update from the store."""
        for offset, data in store.spool.chunks(key):
            self.add(key.round, offset, data)

    def rebuild(self, store: Store, run: Run) -> list[str]:
        """After a restart: the sum of everything that had been accepted in the open attempt; whose update is lost."""
        assert run.round is not None
        lost = []
        for participant, digest in run.round.updates.items():
            key = UploadKey(run.run_id, run.round.round, run.round.attempt, participant, digest)
            if store.spool.is_whole(key):
                self.add_stored(store, key)
            else:
                lost.append(participant)
        return lost

    def discard(self) -> None:
        """The attempt is over."""
        self._running = None

    def start(self, runner: Runner, effect: Sum, now: Callable[[], float]) -> None:
        """Compute the consensus, then post what came of it."""
        self._task = asyncio.create_task(self._compute(runner, effect, now))

    async def stop(self) -> None:
        """Let go of a computation in progress; it starts again after a restart."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _compute(self, runner: Runner, effect: Sum, now: Callable[[], float]) -> None:
        run = runner.run
        assert run.round is not None
        try:
            after = await self._in_good_place(run.round, runner.facts.book())
        except DcfpcaError as error:
            fatal = not isinstance(error, UnusableSum)
            log("sum_failed", level="error", run=run.run_id, round=effect.round, reason=str(error))
            runner.tell(_failed(effect, str(error), fatal, now()))
            return
        outcome = after.outcome.value if after.outcome else ""
        self._pending = Reached(effect.round, effect.attempt, after, _view(runner, run, run.round, after, now()))
        reached = events.ConsensusReached(at=now(), outcome=outcome, round=effect.round, attempt=effect.attempt)
        runner.tell(reached)

    async def _in_good_place(self, round: Round, book: secagg.Book | None) -> Consensus:
        if self._method.update_layout(round.round).size * 8 <= INLINE_BYTES:
            # More threads would be no faster, and would spin until long after, beside those who have work to do.
            with _blas().limit(limits=1):
                return self._next(round, book)
        return await asyncio.to_thread(self._next, round, book)

    def _next(self, round: Round, book: secagg.Book | None) -> Consensus:
        running = self._running or RunningSum(self._spec, self._method.update_layout(round.round))
        try:
            return next_consensus(self._spec, self._method, self.consensus, round, book, running)
        except DcfpcaError:
            raise
        except Exception as error:
            # Whatever it is, it would come again: the run fails with the reason instead of waiting for ever.
            raise BadInput(f"round {round.round} cannot be summed: {type(error).__name__}: {error}") from error

    def reached(self, journal: Sequence[events.Event]) -> Reached | None:
        """The pending consensus, if this batch of events makes it the run's."""
        for event in journal:
            if isinstance(event, events.ConsensusReached):
                return self._pending
        return None

    def adopt(self, reached: Reached) -> None:
        """The consensus is durable now."""
        self.consensus, self.finished, self._pending = reached.consensus, reached.view, None


@cache
def _blas() -> ThreadpoolController:
    """Made at the first sum, when the libraries that it is about have been loaded."""
    return ThreadpoolController()


def _view(runner: Runner, run: Run, round: Round, after: Consensus, now: float) -> RoundView:
    progress, traffic = after.progress, runner.traffic
    view = RoundView(
        round=round.round,
        attempt=round.attempt,
        seconds=now - round.opened_at,
        change=progress.change,
        rank=progress.rank,
        noise=progress.noise,
        threshold=progress.threshold,
        bytes_received=traffic.received,
        bytes_sent=traffic.sent,
        survivors=round.survivors,
        dropouts=sorted(set(run.cohort) - set(round.survivors)),
        singular_values=progress.singular_values.tolist(),
    )
    traffic.received = traffic.sent = 0
    log(
        "consensus_reached",
        run=run.run_id,
        round=round.round,
        attempt=round.attempt,
        seconds=view.seconds,
        change=progress.change,
        rank=progress.rank,
        survivors=len(round.survivors),
        dropouts=list(view.dropouts) or None,
    )
    return view


def _failed(effect: Sum, reason: str, fatal: bool, at: float) -> events.SumFailed:
    return events.SumFailed(at=at, reason=reason, fatal=fatal, round=effect.round, attempt=effect.attempt)
