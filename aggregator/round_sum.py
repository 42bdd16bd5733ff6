"""The computation of a run: the running sum of the open attempt, the consensus that follows, and the final one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from weakref import WeakMethod

import numpy as np
from threadpoolctl import ThreadpoolController

from aggregator.run import events
from aggregator.run.state import Attempt, Run
from aggregator.store.run_rows import StoredSum, read_consensus
from aggregator.store.store import Store
from aggregator.store.thread import StoreThread
from aggregator.store.update_files import UpdateKey
from aggregator.sums import (
    EncodedConsensus,
    MaskedSum,
    OpenedRound,
    PlainSum,
    UnusableSum,
    encoded_consensus,
    sums_of,
)
from dcfpca.errors import BadInput, DcfpcaError
from dcfpca.freed_memory import return_freed_memory
from dcfpca.logs import log
from dcfpca.rpca.method import Consensus, FloatArray, TensorMessage, Verdict
from dcfpca.terms import Terms
from dcfpca.v1.admin_pb2 import RoundView
from dcfpca.wire.tensors import Buffer

ON_LOOP_BYTES = 1 << 19
"""Up to this size computing on the event loop is faster than in a thread that shares the interpreter with it."""

Post = Callable[[events.Event], None]
Clock = Callable[[], float]

RELEASE_SECONDS = 600.0
"""How long after its last use the tensors of a run that is over stay in memory."""

_RELEASED = TensorMessage(np.zeros((0, 0)), np.zeros(0))


@dataclass(slots=True)
class Traffic:
    """Payload bytes of the open round."""

    received: int = 0
    sent: int = 0


@dataclass(frozen=True, slots=True)
class ReachedConsensus:
    """A consensus that has been computed but is not yet durable, with the finished round's view."""

    opened: OpenedRound
    encoded: EncodedConsensus
    view: RoundView


class RoundSum:
    """Adds updates as they arrive, and turns their sum into the next consensus.

    `pending` follows from the open round, and becomes `consensus` once it is durable. `opened_sum` is the sum that
    `consensus` follows from; None in a plain run, and after a restart. `traffic` is that of the open round.
    """

    def __init__(self, terms: Terms, consensus: Consensus) -> None:
        self._terms, self.sums, self.consensus = terms, sums_of(terms), consensus
        self.running: MaskedSum | PlainSum | None = None
        self.pending: ReachedConsensus | None = None
        self.finished: RoundView | None = None
        self.opened_sum: StoredSum | None = None
        self.traffic = Traffic()
        self._encoded: EncodedConsensus | None = None
        self._task: asyncio.Task[None] | None = None

    def encoded(self) -> EncodedConsensus:
        """The consensus that the open round answers, or the final one, encoded once."""
        if self._encoded is None or self._encoded.consensus is not self.consensus:
            self._encoded = encoded_consensus(self.consensus)
        return self._encoded

    def replace_encoded(self, encoded: EncodedConsensus) -> None:
        """Hold this consensus and its encoded form instead."""
        self.consensus, self._encoded = encoded.consensus, encoded

    def add(self, chunks: Iterable[tuple[int, Buffer]]) -> None:
        """Add an accepted update, or part of it: chunks, each with the byte at which it starts."""
        if self.running is None:
            self.running = self.sums.begin(self.consensus.stage)
        for offset, data in chunks:
            self.running.add(offset, data)

    def rebuild(self, store: Store, attempt: Attempt) -> list[str]:
        """After a restart, sum the accepted updates of the open attempt; returns whose updates are missing or torn.

        The sum is then over the others. What was left of the lost ones is deleted, so that they can be sent again.
        """
        keys = [UpdateKey(attempt.ref, name, sha256) for name, sha256 in attempt.updates.items()]
        self.running = self.sums.begin(self.consensus.stage) if keys else None
        lost = [key for key in keys if not self._add_verified(store, key)]
        if lost:
            self.running = None
            for key in lost:
                store.updates.forget(key)
            for key in keys:
                if key not in lost:
                    self.add(store.updates.chunks(key))
        return [key.participant for key in lost]

    def _add_verified(self, store: Store, key: UpdateKey) -> bool:
        """Add and verify an update in one pass; False, leaving the sum unusable, when it is missing or torn."""
        assert self.running is not None
        whole = store.updates.size(key) == self.running.nbytes
        return whole and store.updates.read_verified(key, self.running.add)

    def start(self, run: Run, post: Post, now: Clock) -> None:
        """Compute the consensus of the open attempt in the background, then post the event that follows."""

        async def compute() -> None:
            post(await self.outcome(run, now))

        self._task = asyncio.create_task(compute())

    async def stop(self) -> None:
        """Cancel a computation in progress; it starts again after a restart."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def is_small(self) -> bool:
        """Whether the sum of the open round is formed on the event loop."""
        return self._terms.method.stage(self.consensus.stage).up.size * 8 <= ON_LOOP_BYTES

    async def outcome(self, run: Run, now: Clock) -> events.ConsensusReached | events.SumFailed:
        """Compute the consensus that follows from the running sum; it is `pending` until it is durable."""
        assert run.attempt is not None
        began, ref, asked = now(), run.attempt.ref, self.consensus.stage
        try:
            opened = self._open(run) if self.is_small else await asyncio.to_thread(self._open, run)
        except DcfpcaError as error:
            log("sum_failed", level="error", run=ref.run_id, round=ref.round, reason=str(error))
            fatal = not isinstance(error, UnusableSum)
            return events.SumFailed(at=now(), reason=str(error), fatal=fatal, ref=ref)
        after, at = opened.consensus, now()
        view = round_view(run, run.attempt, after, self.traffic, at)
        view.stage, view.awaited_seconds = asked, max(0.0, began - run.attempt.opened_at)
        self.traffic = Traffic()
        log(
            "consensus_reached",
            run=ref.run_id,
            round=view.round,
            attempt=view.attempt,
            stage=view.stage,
            seconds=view.seconds,
            change=view.change,
            rank=view.rank,
            survivors=len(view.survivors),
            dropouts=list(view.dropouts) or None,
        )
        self.pending = ReachedConsensus(opened, encoded_consensus(after), view)
        return events.ConsensusReached(
            at=at,
            outcome=after.outcome.value if after.outcome else "",
            ref=ref,
            sum_digest=opened.sum_digest,
            exponents=opened.exponents,
            stage=after.stage,
        )

    def _open(self, run: Run) -> OpenedRound:
        _limit_blas()
        self.add(())
        assert self.running is not None
        try:
            return self.sums.open(run, self.encoded(), self.running.total())
        except DcfpcaError:
            raise
        except Exception as error:
            # Another attempt would raise it again, so the run fails with the reason instead of retrying for ever.
            reason = f"round {self.consensus.round} cannot be summed: {type(error).__name__}: {error}"
            raise BadInput(reason) from error

    def adopt(self, reached: ReachedConsensus) -> None:
        """Make a consensus that is durable now the current one."""
        self.consensus, self._encoded = reached.encoded.consensus, reached.encoded
        self.finished, self.opened_sum, self.pending = reached.view, reached.opened.stored, None
        self._task = None

    def end(self) -> None:
        """The run is over: forget what only an open round needs, and give up a sum that is being formed."""
        if self._task:
            self._task.cancel()
        self.sums, self.running = sums_of(self._terms), None
        self.finished = self.opened_sum = self.pending = self._task = None


@cache
def _limit_blas() -> None:
    """Give BLAS one thread, at the first sum, when its libraries have been loaded.

    More threads spin beside those that have work to do, and round differently: a member that carries out the step
    itself, also with one thread, finds the same bytes on the same kind of machine.
    """
    ThreadpoolController().limit(limits=1)


def round_view(run: Run, attempt: Attempt, after: Consensus, traffic: Traffic, now: float) -> RoundView:
    """A finished round as operators see it."""
    progress = after.progress
    return RoundView(
        round=attempt.ref.round,
        attempt=attempt.ref.attempt,
        seconds=max(0.0, now - attempt.opened_at),
        change=progress.change,
        rank=progress.rank,
        noise=progress.noise,
        threshold=progress.threshold,
        bytes_received=traffic.received,
        bytes_sent=traffic.sent,
        survivors=attempt.survivors,
        dropouts=sorted(set(run.cohort) - set(attempt.survivors)),
        singular_values=progress.singular_values.tolist(),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """The verdict on a finished run, and the error by rank; None where the method has no such."""

    verdict: Verdict | None
    rank_curve: FloatArray | None


def _if_there(method: WeakMethod[Callable[[], None]]) -> None:
    if (bound := method()) is not None:
        bound()


class FinalConsensus:
    """Releases the tensors of one run once it is over, and reads them again when somebody asks for them.

    Figures, round, stage and header of the consensus stay in memory.
    """

    def __init__(self, run_id: str, terms: Terms, round_sum: RoundSum, store: StoreThread) -> None:
        self._run_id, self._terms, self._round_sum, self._store = run_id, terms, round_sum, store
        self._timer: asyncio.TimerHandle | None = None
        self._judgement: Judgement | None = None

    async def whole(self) -> Consensus:
        """The consensus with its tensors; raises UnusableState when the store's copy is damaged."""
        if self._round_sum.consensus.broadcast is _RELEASED:
            self._round_sum.consensus = await self._store.do(
                lambda store: read_consensus(store.connection, self._run_id)
            )
        self.release_later()
        return self._round_sum.consensus

    async def judgement(self) -> Judgement:
        """What the method says of its answer, computed once."""
        if self._judgement is None:
            held = await self.whole()
            method, features = self._terms.method, self._terms.spec.features
            self._judgement = Judgement(method.verdict(held, features), method.model(held).get("curve"))
        return self._judgement

    def release_later(self) -> None:
        """Release the tensors RELEASE_SECONDS from now, unless this is gone by then: the timer does not keep it."""
        self.cancel()
        self._timer = asyncio.get_running_loop().call_later(RELEASE_SECONDS, _if_there, WeakMethod(self._release))

    def cancel(self) -> None:
        """Keep what is in memory."""
        if self._timer:
            self._timer.cancel()

    def _release(self) -> None:
        here = self._round_sum
        self._timer = None
        slim = replace(here.consensus, broadcast=_RELEASED, memory={})
        held = here.encoded()
        here.replace_encoded(replace(held, payload=b"", consensus=slim, memory=b""))
        return_freed_memory()
