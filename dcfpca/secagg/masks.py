"""Mask expansion: AES-256 in counter mode, one key per mask, added to a ring vector block by block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from dcfpca.secagg.ring_fixed_point import RingArray

# Small enough to stay in the second-level cache between the cipher and the addition.
BLOCK_BYTES = 1 << 17
_ZEROS: NDArray[np.uint8] = np.zeros(BLOCK_BYTES, dtype=np.uint8)


def add_mask(vector: RingArray, key: bytes) -> None:
    """vector += stream(key), in place, wrapping around."""
    for part, stream in _blocks(vector, key):
        np.add(part, stream, out=part)


def subtract_mask(vector: RingArray, key: bytes) -> None:
    """vector −= stream(key), in place, wrapping around."""
    for part, stream in _blocks(vector, key):
        np.subtract(part, stream, out=part)


def expand(key: bytes, size: int) -> bytes:
    """The first `size` bytes of the key's stream."""
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))


def _blocks(vector: RingArray, key: bytes) -> Iterator[tuple[RingArray, RingArray]]:
    # The counter may start at zero because no key ever serves a second mask.
    cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    per_block = BLOCK_BYTES // vector.itemsize
    stream = np.empty(min(per_block, len(vector)), dtype=vector.dtype)
    for start in range(0, len(vector), per_block):
        part = vector[start : start + per_block]
        cipher.update_into(_ZEROS[: part.nbytes].data, stream[: len(part)].view(np.uint8).data)
        yield part, stream[: len(part)]
