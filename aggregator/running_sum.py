"""The running sum of one attempt, and the consensus that follows from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregator.run.secure_sum import agreement_of, survivors_of
from aggregator.run.state import Attempt
from dcfpca import secagg
from dcfpca.chunked_vectors import Buffer
from dcfpca.errors import BadInput, BadMessage
from dcfpca.logs import log
from dcfpca.rpca.method import Consensus, FloatArray, Layout, Method, Outcome, TensorMessage, Total
from dcfpca.rpca.order_independent_sum import OrderIndependentSum
from dcfpca.spec import RunSpec
from dcfpca.v1 import types_pb2 as pb
from dcfpca.v1.types_pb2 import Dtype


def update_dtype(spec: RunSpec) -> Dtype:
    """The number format of the updates in a run of this spec."""
    if spec.aggregation == "plain":
        return pb.DTYPE_FLOAT64
    return pb.DTYPE_UINT64 if spec.precision == 64 else pb.DTYPE_UINT32


class RunningSum:
    """The sum of an attempt's updates, added as they arrive: memory does not grow with the number of participants.

    The order of arrival does not matter: masked numbers wrap around, and plain sums keep what each addition rounds off.
    """

    def __init__(self, spec: RunSpec, layout: Layout) -> None:
        self._plain = OrderIndependentSum(layout.size) if spec.aggregation == "plain" else None
        kind = np.dtype("<f8") if self._plain else secagg.dtype_of(spec.precision)
        self._masked: NDArray[Any] = np.zeros(0 if self._plain else layout.size, dtype=kind)
        self.nbytes = layout.size * kind.itemsize

    def add(self, offset: int, data: Buffer) -> None:
        """Add the chunk of an update that starts at this byte."""
        piece = np.frombuffer(data, dtype=self._masked.dtype)
        start = offset // self._masked.itemsize
        if self._plain:
            self._plain.add(piece, start)
            return
        view = self._masked[start : start + len(piece)]
        np.add(view, piece, out=view)

    def total(self) -> NDArray[Any]:
        """The sum. It belongs to the caller, who may change it in place; nothing can be added afterwards."""
        return self._plain.total() if self._plain else self._masked


class UnusableSum(BadMessage):
    """The sum of this attempt cannot be opened; the round must be tried again."""


def next_consensus(
    spec: RunSpec,
    method: Method,
    consensus: Consensus,
    attempt: Attempt,
    closed: secagg.ClosedRoster | None,
    running: RunningSum,
) -> Consensus:
    """Open the sum and advance the method. Raises UnusableSum to retry the round, BadInput to end the run.

    A run whose rounds were renumbered after a backup may want more than sites agreed to; it ends with what it has.
    """
    after = advanced(method, consensus, _opened(attempt, closed, running), len(attempt.survivors))
    if after.outcome is None and after.round > spec.last_round:
        return replace(after, round=consensus.round, outcome=Outcome.OUT_OF_ROUNDS)
    return after


def advanced(method: Method, consensus: Consensus, vector: FloatArray, contributors: int) -> Consensus:
    """The consensus that follows from an opened sum. Raises UnusableSum or BadInput as `next_consensus` does."""
    if not np.isfinite(vector).all():
        raise UnusableSum("the sum holds numbers that are not finite")
    layout = method.update_layout(consensus.round, consensus.stage)
    after = method.advance(consensus, Total(TensorMessage.unflatten(layout, vector), contributors))
    if after.outcome is Outcome.DIVERGED:
        raise BadInput(after.outcome.value)
    return after


def _opened(attempt: Attempt, closed: secagg.ClosedRoster | None, running: RunningSum) -> FloatArray:
    if closed is None:
        return running.total()
    agreement = agreement_of(attempt)
    reveals = [attempt.reveals[name] for name in sorted(attempt.reveals)]
    try:
        masks = secagg.recover(closed, agreement, survivors_of(attempt), reveals)
    except BadMessage as error:
        raise UnusableSum(str(error)) from error
    for share in masks.inconsistent:
        log("share_misfitted", level="warning", round=attempt.ref.round, holder=share.holder, owner=share.owner)
    total = running.total()
    secagg.remove_masks(total, masks)
    return secagg.open_sum(closed.context, agreement, total)
