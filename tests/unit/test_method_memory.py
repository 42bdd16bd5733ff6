"""The canonical encoding of a method's memory."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from dcfpca.errors import BadMessage
from dcfpca.method_memory import decode_memory, encode_memory

MEMORY = {"U": np.arange(6.0).reshape(3, 2), "count": np.array(4, dtype=np.int64), "best": np.zeros((0, 2))}


def test_a_memory_is_read_back_as_it_was() -> None:
    back = decode_memory(encode_memory(MEMORY))
    assert back.keys() == MEMORY.keys()
    for name, array in MEMORY.items():
        assert back[name].shape == array.shape
        assert back[name].dtype == array.dtype
        assert np.array_equal(back[name], array)


def test_the_order_of_keys_and_of_bytes_in_memory_does_not_matter() -> None:
    other = {name: np.array(MEMORY[name], order="F") for name in reversed(list(MEMORY))}
    big = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in MEMORY.items()}
    assert encode_memory(other) == encode_memory(MEMORY) == encode_memory(big)


@pytest.mark.parametrize("name", sorted(MEMORY))
def test_a_changed_array_changes_the_digest(name: str) -> None:
    changed = MEMORY | {name: np.ones((1, 1))}
    assert hashlib.sha256(encode_memory(changed)).digest() != hashlib.sha256(encode_memory(MEMORY)).digest()


def test_damaged_bytes_are_refused() -> None:
    encoded = encode_memory(MEMORY)
    twice = encoded + encoded
    for damaged in (encoded[:-1], encoded + b"\0", twice, b"\xff" * 40):
        with pytest.raises(BadMessage):
            decode_memory(damaged)
