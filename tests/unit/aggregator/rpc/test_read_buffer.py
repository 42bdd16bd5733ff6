"""How much is read from a connection at once depends on how many connections may keep a buffer of that size."""

from __future__ import annotations

from aggregator.config import Limits
from aggregator.rpc.server import read_buffer_bytes

PIECES_FROM = 12 << 10
"""From here on gRPC reads into pieces of 64 KiB."""


def test_a_service_for_few_participants_reads_in_large_pieces() -> None:
    assert all(read_buffer_bytes(allowed) >= PIECES_FROM for allowed in (1, 10, 256))


def test_a_service_for_many_participants_does_not() -> None:
    assert all(read_buffer_bytes(allowed) < PIECES_FROM for allowed in (257, Limits().max_participants, 4000))
