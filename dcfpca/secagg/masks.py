"""Mask expansion: AES-256 in counter mode, one key per mask, added to a ring vector block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from dcfpca.secagg.ring_fixed_point import RingArray

# Small enough to stay in the second-level cache between the cipher and the addition.
BLOCK_BYTES = 1 << 17
_ZEROS: NDArray[np.uint8] = np.zeros(BLOCK_BYTES, dtype=np.uint8)


def add_mask(vector: RingArray, key: bytes) -> None:
    """vector += stream(key), in place, wrapping around."""
    for start, stream in stream_blocks(key, len(vector), vector.dtype):
        part = vector[start : start + len(stream)]
        np.add(part, stream, out=part)


def subtract_mask(vector: RingArray, key: bytes) -> None:
    """vector −= stream(key), in place, wrapping around."""
    for start, stream in stream_blocks(key, len(vector), vector.dtype):
        part = vector[start : start + len(stream)]
        np.subtract(part, stream, out=part)


def expand(key: bytes, size: int) -> bytes:
    """The first `size` bytes of the key's stream."""
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))


def stream_blocks(key: bytes, length: int, dtype: np.dtype[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """The first `length` numbers of the key's stream, block by block, each with the place of its first number.

    A block is valid until the next one is asked for, and may be changed.
    """
    # The counter may start at zero because no key ever serves a second mask.
    cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    per_block = BLOCK_BYTES // dtype.itemsize
    buffer = np.empty(min(per_block, length), dtype=dtype)
    for start in range(0, length, per_block):
        block = buffer[: length - start]
        cipher.update_into(_ZEROS[: block.nbytes].data, block.view(np.uint8).data)
        yield start, block
