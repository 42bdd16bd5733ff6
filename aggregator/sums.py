"""The sums of a run: how a round is announced, how its updates are checked and added, and how their sum is opened.

`SecureSums` is the main road; `PlainSums` does the same for a run in which the aggregator sees every update.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.run.attempts import Reply, ticket_of
from aggregator.run.secure_sum import terms_of
from aggregator.run.state import Run, opened, opening_of
from aggregator.store.run_rows import StoredSum
from dcfpca.errors import BadInput, BadMessage
from dcfpca.method_memory import encode_memory
from dcfpca.rpca.kernels.order_independent_sum import OrderIndependentSum
from dcfpca.rpca.method import Consensus, FloatArray, Outcome, TensorMessage, Total
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.aggregator import OpenedSum, open_sum
from dcfpca.secagg.fixed_point import RING, lifted, next_exponents, rounding_of
from dcfpca.secagg.homomorphic_mac import P
from dcfpca.secagg.messages import Opening, RunTerms, consensus_digest, context_of
from dcfpca.terms import Terms
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.receipt import Fate
from dcfpca.wire.round_messages import misfit_to_wire, ref_to_wire, update_dtype
from dcfpca.wire.tensors import Buffer, encoded_chunks, header_with, message_bytes


@dataclass(frozen=True)
class EncodedConsensus:
    """A consensus encoded once for all who ask: its header, and its payload in little-endian doubles."""

    header: types.TensorHeader
    payload: bytes = field(repr=False)
    consensus: Consensus = field(repr=False)
    memory: bytes = field(repr=False)
    """The method's memory that goes with the consensus, canonically encoded."""
    memory_sha256: bytes
    digest: bytes
    """Names everything that a member of a secure run is told with the consensus."""

    def parts(self, offset: int) -> Iterable[bytes]:
        """The payload from this byte on, as encoded parts of a stream; those of the whole are shared by all streams."""
        return encoded_chunks(self.payload, offset) if offset else self._whole

    @cached_property
    def _whole(self) -> tuple[bytes, ...]:
        return tuple(encoded_chunks(self.payload))


def encoded_consensus(consensus: Consensus) -> EncodedConsensus:
    """The consensus as it is sent to the participants."""
    payload, memory = message_bytes(consensus.broadcast), encode_memory(consensus.memory)
    sha, memory_sha256 = hashlib.sha256(payload), hashlib.sha256(memory).digest()
    (rows, columns), scalars = consensus.broadcast.tensor.shape, consensus.broadcast.scalars.size
    shape = {"rows": rows, "columns": columns, "scalars": scalars}
    header = types.TensorHeader(dtype=types.DTYPE_FLOAT64, sha256=sha.digest(), **shape)
    digest = consensus_digest(sha, consensus.stage, memory_sha256)
    return EncodedConsensus(header, payload, consensus, memory, memory_sha256, digest)


class UnusableSum(BadMessage):
    """The sum of this attempt cannot be opened; the round must be tried again."""


@dataclass(frozen=True, slots=True)
class OpenedRound:
    """The consensus after a round; of a secure run also what the next round is bound to, and the sum to keep."""

    consensus: Consensus
    sum_digest: bytes = b""
    exponents: tuple[int, ...] = ()
    stored: StoredSum | None = None


class MaskedSum:
    """The sum of an attempt's masked updates, which wrap around: the order in which they arrive does not matter.

    Added as they arrive, so that memory does not grow with the number of participants.
    """

    def __init__(self, size: int, dtype: np.dtype[Any]) -> None:
        self._values: NDArray[Any] = np.zeros(size, dtype=dtype)
        self.nbytes = self._values.nbytes

    def add(self, offset: int, data: Buffer) -> None:
        """Add the chunk of an update that starts at this byte."""
        piece, start = np.frombuffer(data, dtype=self._values.dtype), offset // self._values.itemsize
        view = self._values[start : start + len(piece)]
        np.add(view, piece, out=view)

    def total(self) -> NDArray[Any]:
        """The sum. It belongs to the caller, who may change it in place; nothing can be added afterwards."""
        return self._values


class PlainSum:
    """The sum of an attempt's plain updates. It keeps what each addition rounds off, so that order does not matter."""

    def __init__(self, size: int) -> None:
        self._sum, self.nbytes = OrderIndependentSum(size), size * 8

    def add(self, offset: int, data: Buffer) -> None:
        """Add the chunk of an update that starts at this byte."""
        self._sum.add(np.frombuffer(data, dtype="<f8"), offset // 8)

    def total(self) -> FloatArray:
        """The sum; nothing can be added afterwards."""
        return self._sum.total()


class _Binding(NamedTuple):
    """What the updates of an attempt are masked for. `consensus` is its digest, `agreed` are the cohort's terms."""

    ref: AttemptRef
    consensus: bytes
    agreed: RunTerms
    opening: Opening
    context: bytes


class SecureSums:
    """Sums of masked updates over the whole cohort, in which the masks cancel."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self.dtype = terms, update_dtype(terms.spec)
        self._numbers = RING[terms.spec.precision]
        self._agreed: RunTerms | None = None
        self._binding: _Binding | None = None

    def begin(self, stage: str) -> MaskedSum:
        """The empty sum of an attempt at a round of this stage."""
        return MaskedSum(self.terms.method.stage(stage).up.size, self._numbers)

    def announcement(self, run: Run, consensus: EncodedConsensus, ticket: bytes) -> pb.RoundOpened:
        """The announcement of the open attempt, with all that its masks are bound to; the consensus itself follows."""
        message, (bound, _) = _announcement(run, consensus, ticket), opened(run)
        message.previous_sum = bound.previous_sum
        message.exponents.extend(bound.exponents)
        message.misfits.extend(misfit_to_wire(misfit) for misfit in bound.misfits)
        message.memory_sha256 = consensus.memory_sha256
        return message

    def refusal(self, run: Run, consensus: EncodedConsensus, header: pb.UpdateHeader) -> Reply | None:
        """None if the update is masked for the open attempt, as all others in its sum are; else raises BadMessage.

        The context says more than a ticket, which is therefore not looked at.
        """
        if header.context != self._binding_of(run, consensus).context:
            raise BadMessage(
                "the update is masked for another round, consensus, previous sum or exponent than the open one"
            )
        if not 0 <= header.tag < P:
            raise BadMessage("the tag of the update is not in the field")
        return None

    def _binding_of(self, run: Run, consensus: EncodedConsensus) -> _Binding:
        """What the masks of the open attempt are bound to, worked out once for all its updates."""
        bound, attempt = opened(run)
        if self._binding is None or self._binding[:2] != (attempt.ref, consensus.digest):
            if self._agreed is None:  # known when the cohort is
                self._agreed = terms_of(self.terms.spec, run)
            opening = opening_of(self.terms, run, consensus.digest)
            context = context_of(self._agreed, bound.roster, opening, len(opening.misfits))
            self._binding = _Binding(attempt.ref, consensus.digest, self._agreed, opening, context)
        return self._binding

    def open(self, run: Run, asked: EncodedConsensus, values: NDArray[Any]) -> OpenedRound:
        """Advance the method by the sum of the open round.

        Raises UnusableSum to retry the round, BadInput to end the run.
        """
        terms, (_, attempt), stage = self.terms, opened(run), asked.consensus.stage
        binding = self._binding_of(run, asked)
        opening, tag = binding.opening, sum(attempt.tags.values()) % P
        total = open_sum(binding.agreed, opening, binding.context, values, tag, attempt.updates)
        ended_with = lifted(opening.layout, opening.exponents, len(opening.misfits), terms.spec.precision)
        up = terms.method.stage(stage).up
        rounding = rounding_of(up, ended_with, len(run.cohort), terms.spec.precision)
        sums = TensorMessage.unflatten(up, total.numbers)
        after = advanced(terms, asked.consensus, Total(sums, len(run.cohort), rounding))
        layout = terms.blocks[after.stage]
        exponents = layout.first_exponents
        if layout == opening.layout:  # the next updates will be of the size of this sum
            exponents = next_exponents(layout, ended_with, total.numbers, terms.spec.precision)
        return OpenedRound(after, total.digest, exponents, self._stored(run, asked, total))

    def _stored(self, run: Run, asked: EncodedConsensus, total: OpenedSum) -> StoredSum:
        """The sum in the form in which members can check it, with the announcement of its round."""
        layout = self.terms.method.stage(asked.consensus.stage).up
        header = pb.SumHeader(
            tensor=header_with(total.sha256, layout, self.dtype),
            tag=total.tag,
            opened=self.announcement(run, asked, b""),
            memory=asked.memory,
            contributors=len(run.cohort),
        )
        return StoredSum(opened(run)[1].ref.round, header.SerializeToString(), total.values.tobytes())


class PlainSums:
    """Sums of updates that are not masked, over whoever answered; methods as those of `SecureSums`."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self.dtype = terms, update_dtype(terms.spec)

    def begin(self, stage: str) -> PlainSum:
        """The empty sum of an attempt at a round of this stage."""
        return PlainSum(self.terms.method.stage(stage).up.size)

    def announcement(self, run: Run, consensus: EncodedConsensus, ticket: bytes) -> pb.RoundOpened:
        """The announcement of the open attempt; the consensus itself follows."""
        return _announcement(run, consensus, ticket)

    def refusal(self, run: Run, consensus: EncodedConsensus, header: pb.UpdateHeader) -> Reply | None:
        """Why the update is not for the open attempt; its header shows the ticket of the one that it is for."""
        assert run.attempt is not None
        if header.ticket in (b"", ticket_of(run, run.attempt, consensus.header.sha256)):
            return None
        return Reply(Fate.LATE, "this attempt was opened again by a restored aggregator")

    def open(self, run: Run, asked: EncodedConsensus, values: NDArray[Any]) -> OpenedRound:
        """Advance the method by the sum over the survivors of the round.

        A run whose rounds were renumbered after a backup may want more than sites agreed to; it ends with what it has.
        """
        assert run.attempt is not None
        sums = TensorMessage.unflatten(self.terms.method.stage(asked.consensus.stage).up, values)
        after = advanced(self.terms, asked.consensus, Total(sums, len(run.attempt.survivors), whole=False))
        if after.outcome is None and after.round > self.terms.spec.last_round:
            after = replace(after, round=asked.consensus.round, outcome=Outcome.OUT_OF_ROUNDS)
        return OpenedRound(after)


Sums = SecureSums | PlainSums


def sums_of(terms: Terms) -> Sums:
    """The sums of a run of these terms."""
    return PlainSums(terms) if terms.spec.aggregation == "plain" else SecureSums(terms)


def _announcement(run: Run, consensus: EncodedConsensus, ticket: bytes) -> pb.RoundOpened:
    assert run.attempt is not None
    return pb.RoundOpened(
        ref=ref_to_wire(run.attempt.ref),
        spec_sha256=run.spec_sha256,
        cohort=run.cohort,
        consensus=consensus.header,
        ticket=ticket,
        stage=consensus.consensus.stage,
    )


def advanced(terms: Terms, consensus: Consensus, total: Total) -> Consensus:
    """The consensus that follows from an opened sum. Raises UnusableSum to retry the round, BadInput to end the run.

    A sum that breaks a law which every true one keeps is not used: somebody's update is not what it should be, and
    nobody's data would explain what followed from it.
    """
    if not (np.isfinite(total.sums.tensor).all() and np.isfinite(total.sums.scalars).all()):
        raise UnusableSum("the sum holds numbers that are not finite")
    if broken := terms.method.conserved(consensus, total):
        raise UnusableSum(f"the sum of round {consensus.round} cannot be true: {broken}")
    after = terms.method.advance(consensus, total)
    if after.outcome is Outcome.DIVERGED:
        raise BadInput(after.outcome.value)
    return after
