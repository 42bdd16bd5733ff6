"""A consensus as it is sent, and the announcement of the round that it opens."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from aggregator.run.state import Attempt, Run
from dcfpca.method_memory import encode_memory, memory_digest
from dcfpca.rpca.method import Consensus, Layout
from dcfpca.secagg.messages import consensus_digest
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.round_messages import misfit_to_wire, ref_to_wire
from dcfpca.wire.tensors import encoded_chunks, header_with, message_bytes


@dataclass(frozen=True)
class EncodedConsensus:
    """A consensus encoded: its header, and its payload in little-endian doubles, with a SHA-256 over it."""

    header: types.TensorHeader
    payload: bytes
    sha: hashlib._Hash = field(repr=False)
    consensus: Consensus = field(repr=False)

    def parts(self, offset: int) -> Iterable[bytes]:
        """The payload from this byte on, as encoded parts of a stream; those of the whole are shared by all streams."""
        return encoded_chunks(self.payload, offset) if offset else self._whole

    @cached_property
    def _whole(self) -> tuple[bytes, ...]:
        return tuple(encoded_chunks(self.payload))

    @property
    def stage(self) -> str:
        """The stage of the round that the consensus opens."""
        return self.consensus.stage

    @cached_property
    def memory(self) -> bytes:
        """The method's memory that goes with the consensus, canonically encoded."""
        return encode_memory(self.consensus.memory)

    @cached_property
    def memory_sha256(self) -> bytes:
        """The digest by which the memory is announced."""
        return memory_digest(self.memory)

    @cached_property
    def told(self) -> bytes:
        """Names everything that a member of a secure run is told with the consensus."""
        return consensus_digest(self.sha, self.stage, self.memory_sha256)


def encoded_consensus(layout: Layout, consensus: Consensus) -> EncodedConsensus:
    """The consensus as it is sent to the participants."""
    payload = message_bytes(consensus.broadcast)
    sha = hashlib.sha256(payload)
    return EncodedConsensus(header_with(sha.digest(), layout, types.DTYPE_FLOAT64), payload, sha, consensus)


def round_opened(run: Run, attempt: Attempt, consensus: EncodedConsensus, ticket: bytes) -> pb.RoundOpened:
    """The announcement of the open attempt, without the consensus itself; kept beside the round's sum as well."""
    opened = pb.RoundOpened(
        ref=ref_to_wire(attempt.ref),
        spec_sha256=run.spec_sha256,
        cohort=run.cohort,
        consensus=consensus.header,
        ticket=ticket,
        stage=consensus.stage,
    )
    if run.secure is not None:  # all that the masks of the round are bound to; a plain round has no masks
        opened.previous_sum = run.secure.previous_sum
        opened.exponents.extend(run.secure.exponents)
        opened.misfits.extend(misfit_to_wire(misfit) for misfit in run.secure.misfits)
        opened.memory_sha256 = consensus.memory_sha256
    return opened
