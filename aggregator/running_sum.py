"""The running sum of one attempt, and the consensus that follows once it is complete.

Of a secure run the opened sum is kept, too, in the form in which members can check it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregator.announced_round import EncodedConsensus, round_opened
from aggregator.run.secure_sum import context_of, opened, opening_of, terms_of
from aggregator.run.state import Run
from aggregator.store.run_rows import StoredSum
from dcfpca.errors import BadInput, BadMessage
from dcfpca.rpca.kernels.order_independent_sum import OrderIndependentSum
from dcfpca.rpca.method import Consensus, FloatArray, Layout, Outcome, TensorMessage, Total
from dcfpca.secagg import OpenedSum, Opening, Tally, dtype_of, open_sum
from dcfpca.secagg.fixed_point import first_exponents, lifted, next_exponents
from dcfpca.secagg.homomorphic_mac import P
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.wire.round_messages import update_dtype
from dcfpca.wire.tensors import Buffer, header_with


class RunningSum:
    """The sum of an attempt's updates, added as they arrive: memory does not grow with the number of participants.

    The order of arrival does not matter: masked numbers wrap around, and plain sums keep what each addition rounds off.
    """

    def __init__(self, spec: RunSpec, layout: Layout) -> None:
        self._plain = OrderIndependentSum(layout.size) if spec.aggregation == "plain" else None
        kind = np.dtype("<f8") if self._plain else dtype_of(spec.precision)
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


@dataclass(frozen=True, slots=True)
class OpenedRound:
    """The consensus after a round; of a secure run also what the next round is bound to, and the sum to keep."""

    consensus: Consensus
    sum_digest: bytes = b""
    exponents: tuple[int, ...] = ()
    stored: StoredSum | None = None


OpenRound = Callable[[Terms, Run, EncodedConsensus, NDArray[Any]], OpenedRound]
"""Advances the method by the sum of the open round. Raises UnusableSum to retry the round, BadInput to end the run."""


def opener_of(spec: RunSpec) -> OpenRound:
    """How the sums of a run of this spec are opened."""
    return _open_plain if spec.aggregation == "plain" else _open_secure


def _open_secure(terms: Terms, run: Run, told: EncodedConsensus, values: NDArray[Any]) -> OpenedRound:
    """The sum is over the whole cohort, so its masks cancel."""
    _, attempt = opened(run)
    opening = opening_of(terms, run, told.told)
    tag = sum(attempt.tags.values()) % P
    tally = Tally(context_of(terms, run, told.told), values, tag, set(attempt.updates))
    total = open_sum(terms_of(terms.spec, run), opening, tally)
    ended_with = lifted(opening.layout, opening.exponents, len(opening.misfits), terms.spec.precision)
    rounding = terms.rounding(told.stage, ended_with, len(run.cohort))
    after = advanced(terms, told.consensus, total.numbers, len(run.cohort), rounding)
    exponents = _next_exponents(terms, opening, ended_with, total, after)
    return OpenedRound(after, total.digest(), exponents, _stored(terms, run, told, total))


def _open_plain(terms: Terms, run: Run, told: EncodedConsensus, values: NDArray[Any]) -> OpenedRound:
    """The sum is over the survivors of the round.

    A run whose rounds were renumbered after a backup may want more than sites agreed to; it ends with what it has.
    """
    assert run.attempt is not None
    after = advanced(terms, told.consensus, values, len(run.attempt.survivors))
    if after.outcome is None and after.round > terms.spec.last_round:
        after = replace(after, round=told.consensus.round, outcome=Outcome.OUT_OF_ROUNDS)
    return OpenedRound(after)


def advanced(
    terms: Terms,
    consensus: Consensus,
    vector: FloatArray,
    contributors: int,
    rounding: tuple[float, float] = (0.0, 0.0),
) -> Consensus:
    """The consensus that follows from an opened sum. Raises UnusableSum to retry the round, BadInput to end the run.

    A sum that breaks a law which every true one keeps is not used: somebody's update is not what it should be, and
    nobody's data would explain what followed from it.
    """
    if not np.isfinite(vector).all():
        raise UnusableSum("the sum holds numbers that are not finite")
    sums = TensorMessage.unflatten(terms.up(consensus.stage), vector)
    total = Total(sums, contributors, rounding, whole=terms.spec.aggregation == "secure")
    if broken := terms.method.conserved(consensus, total):
        raise UnusableSum(f"the sum of round {consensus.round} cannot be true: {broken}")
    after = terms.method.advance(consensus, total)
    if after.outcome is Outcome.DIVERGED:
        raise BadInput(after.outcome.value)
    return after


def _next_exponents(
    terms: Terms, opening: Opening, ended_with: tuple[int, ...], total: OpenedSum, after: Consensus
) -> tuple[int, ...]:
    """The exponents of the next round: from this sum if its updates have the same layout, else from the layout."""
    layout = terms.blocks[after.stage]
    if layout != opening.layout:
        return first_exponents(layout)
    return next_exponents(layout, ended_with, total.numbers, terms.spec.precision)


def _stored(terms: Terms, run: Run, told: EncodedConsensus, total: OpenedSum) -> StoredSum:
    _, attempt = opened(run)
    header = pb.SumHeader(
        tensor=header_with(total.sha256, terms.up(told.stage), update_dtype(terms.spec)),
        tag=total.tag,
        opened=round_opened(run, attempt, told, b""),
        memory=told.memory,
        contributors=len(run.cohort),
    )
    return StoredSum(attempt.ref.round, header.SerializeToString(), total.values.tobytes())
