"""Masks between two members: their common root, the keys derived from it, and the expansion of a key to a mask.

The root of each round is derived from that of the round before by a one-way step: whoever steals a later root cannot
compute an earlier one. A mask is the stream of AES-256 in counter mode, one key per mask, added to a vector block by
block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from dcfpca.secagg.encoding import derive
from dcfpca.secagg.fixed_point import RingArray

# Small enough to stay in the second-level cache between encryption and addition.
BLOCK_BYTES = 1 << 17
_ZEROS: NDArray[np.uint8] = np.zeros(BLOCK_BYTES, dtype=np.uint8)


def pair_agreement(shared: bytes, roster: bytes, one: str, other: str) -> bytes:
    """What the X25519 secret of two members gives under this roster, symmetric in both."""
    return derive(shared, "pair-agreement", roster, min(one, other), max(one, other))


def pair_part(seed: bytes, roster: bytes, receiver: str) -> bytes:
    """A member's own part of the root that it has with the receiver: the same whenever the share is sealed again."""
    return derive(seed, "pair-part", roster, receiver)


def pair_root(agreement: bytes, parts: dict[str, bytes]) -> bytes:
    """The root of round 0 from the agreement of two members and the part of each, by name."""
    first, second = sorted(parts)
    return derive(agreement + parts[first] + parts[second], "pair-root", first, second)


def ratchet(root: bytes, rounds: int) -> bytes:
    """The root after `rounds` more rounds."""
    for _ in range(rounds):
        root = derive(root, "ratchet")
    return root


def sealing_key(agreement: bytes, carried: bytes, sender: str, receiver: str) -> bytes:
    """The key that seals the single share from this sender to this receiver, from their agreement and the secret that
    the sender's ciphertext carries: whoever breaks one of the two does not have it."""
    return derive(agreement + carried, "seal-share", sender, receiver)


def mask_key(root: bytes, context: bytes) -> bytes:
    """The key of a pair's mask in one context."""
    return derive(root, "pair-mask", context)


def mask_values(values: RingArray, key: bytes, name: str, peer: str) -> None:
    """Mask `name`'s numbers against `peer` in place, wrapping around: of a pair, the first in order adds the stream of
    the key and the second subtracts it."""
    combine = np.add if name < peer else np.subtract
    for start, stream in stream_blocks(key, len(values), values.dtype):
        part = values[start : start + len(stream)]
        combine(part, stream, out=part)


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
