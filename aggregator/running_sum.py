"""The running sum of one attempt, and the consensus that follows from it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregator.run import secure_sum_checks
from aggregator.run.state import Round
from dcfpca import secagg
from dcfpca.errors import BadInput, BadMessage
from dcfpca.logs import log
from dcfpca.rpca.method import Consensus, FloatArray, Layout, Method, Outcome, TensorMessage, Total
from dcfpca.rpca.order_independent_sum import OrderIndependentSum
from dcfpca.spec import RunSpec
from dcfpca.v1 import types_pb2 as pb
from dcfpca.v1.types_pb2 import Dtype


def update_dtype(spec: RunSpec) -> Dtype:
    """Number format of the updates in a run of this spec."""
    if spec.aggregation == "plain":
        return pb.DTYPE_FLOAT64
    return pb.DTYPE_UINT64 if spec.precision == 64 else pb.DTYPE_UINT32


class RunningSum:
    """Updates are added as they arrive, so memory does not grow with the number of participants.

    Who is first does not matter: masked numbers wrap around, and plain ones keep what an addition rounds off.
    """

    def __init__(self, spec: RunSpec, layout: Layout) -> None:
        self._plain = OrderIndependentSum(layout.size) if spec.aggregation == "plain" else None
        kind = np.dtype("<f8") if self._plain else secagg.dtype_of(spec.precision)
        self._masked: NDArray[Any] = np.zeros(0 if self._plain else layout.size, dtype=kind)

    def add(self, offset: int, data: bytes) -> None:
        """Add the piece of an update that starts at this byte; unsigned integers wrap around as they should."""
        piece = np.frombuffer(data, dtype=self._masked.dtype)
        start = offset // self._masked.itemsize
        if self._plain:
            self._plain.add(piece, start)
            return
        view = self._masked[start : start + len(piece)]
        np.add(view, piece, out=view)

    def total(self) -> NDArray[Any]:
        """The sum so far, in an array of its own."""
        return self._plain.total() if self._plain else self._masked.copy()


class UnusableSum(BadMessage):
    """This attempt's sum cannot be opened; the round must be tried again."""


def next_consensus(
    spec: RunSpec, method: Method, consensus: Consensus, round: Round, book: secagg.Book | None, running: RunningSum
) -> Consensus:
    """Open the sum and let the method advance. BadInput: the run cannot go on; UnusableSum: try the round again."""
    layout = method.update_layout(round.round)
    vector = _opened(spec, round, book, running)
    if not np.isfinite(vector).all():
        raise UnusableSum("the sum holds numbers that are not finite")
    after = method.advance(consensus, Total(TensorMessage.unflatten(layout, vector), len(round.survivors)))
    if after.outcome is Outcome.DIVERGED:
        raise BadInput(after.outcome.value)
    return after


def _opened(spec: RunSpec, round: Round, book: secagg.Book | None, running: RunningSum) -> FloatArray:
    if spec.aggregation == "plain" or book is None:
        return running.total()
    agreement, survivors = secure_sum_checks.agreement_of(round), secure_sum_checks.survivors_of(round)
    try:
        masks = secagg.recover(book, agreement, survivors, secure_sum_checks.reveals_of(round))
    except BadMessage as error:
        raise UnusableSum(str(error)) from error
    for misfit in masks.misfits:
        log("share_misfitted", level="warning", round=round.round, holder=misfit.holder, owner=misfit.owner)
    total = running.total()
    secagg.remove_masks(total, masks)
    return secagg.open_sum(book.context, agreement, total)
