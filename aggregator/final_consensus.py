"""The consensus of a run that is over: in memory for a while after its last use, else in the store alone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import numpy as np

from aggregator.encoded_consensus import EncodedConsensus
from aggregator.round_sum import RoundSum
from aggregator.store_thread import StoreThread
from dcfpca.freed_memory import return_freed_memory
from dcfpca.rpca.method import Consensus, FloatArray, Method, TensorMessage, Verdict

RELEASE_SECONDS = 600.0
"""How long after its last use the tensors of a run that is over stay in memory."""

_RELEASED = TensorMessage(np.zeros((0, 0)), np.zeros(0))


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """The verdict on a finished run, and the error by rank; None where the method has no such."""

    verdict: Verdict | None
    rank_curve: FloatArray | None


class FinalConsensus:
    """Releases the tensors of one run once it is over, and reads them again when somebody asks for them.

    Figures, round, stage and header of the consensus stay in memory.
    """

    def __init__(self, run_id: str, method: Method, round_sum: RoundSum, store: StoreThread) -> None:
        self._run_id, self._method, self._round_sum, self._store = run_id, method, round_sum, store
        self._timer: asyncio.TimerHandle | None = None
        self._judgement: Judgement | None = None

    async def whole(self) -> Consensus:
        """The consensus with its tensors; raises UnusableState when the store's copy is damaged."""
        if self._round_sum.consensus.broadcast is _RELEASED:
            self._round_sum.consensus = await self._store.do(lambda store: store.read_consensus(self._run_id))
        self.release_later()
        return self._round_sum.consensus

    async def judgement(self) -> Judgement:
        """What the method says of its answer, computed once."""
        if self._judgement is None:
            held = await self.whole()
            self._judgement = Judgement(self._method.verdict(held), self._method.model(held).get("curve"))
        return self._judgement

    def release_later(self) -> None:
        """Release the tensors RELEASE_SECONDS from now."""
        self.cancel()
        self._timer = asyncio.get_running_loop().call_later(RELEASE_SECONDS, self._release)

    def cancel(self) -> None:
        """Keep what is in memory."""
        if self._timer:
            self._timer.cancel()

    def _release(self) -> None:
        here = self._round_sum
        slim = replace(here.consensus, broadcast=_RELEASED, memory={})
        held = here.encoded()
        here.replace_encoded(EncodedConsensus(held.header, b"", held.sha, slim))
        return_freed_memory()
