"""Recognises the columns of a site's matrix by keyed hashes, in whatever order or file they come back.

Two runs are over the same data if their columns overlap, not only if their files are equal: a sorted file, or one with
a column added, is about the same persons. The key is made at the site and never leaves it, and neither do the hashes,
so nobody can confirm a guess of a column.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput

Hashes = NDArray[np.uint64]
KEY_BYTES = 32
HASH_BYTES = 8
"""Among a million columns two share a hash by chance with probability 3e-8; this only causes a false alarm."""
_LABEL = b"dcfpca/v1/columns"
_STEP = np.uint64(0x9E3779B97F4A7C15)  # odd, so that the ranks of equal columns give distinct numbers


@dataclass(frozen=True, eq=False)
class ColumnSet:
    """The columns of one state of the data, in order. `contents` holds a hash of each column's values; equal columns
    get different hashes. `owners` holds a hash of the column's person or id, or of its values where the data has
    neither."""

    key_id: bytes
    contents: Hashes
    owners: Hashes

    @cached_property
    def digest(self) -> bytes:
        """A digest of the columns that does not depend on their order."""
        parts = (self.key_id, np.sort(self.contents).tobytes(), np.sort(self.owners).tobytes())
        return hashlib.sha256(_LABEL + b"".join(parts)).digest()

    def shared_with(self, earlier: ColumnSet | None) -> NDArray[np.bool_]:
        """Which of these columns an earlier set has, by person or by values; all if the two cannot be compared."""
        if earlier is None or earlier.key_id != self.key_id:
            return np.ones(self.contents.size, dtype=bool)
        return np.isin(self.owners, earlier.owners) | np.isin(self.contents, earlier.contents)

    def at(self, places: NDArray[np.intp]) -> ColumnSet:
        """The columns at these places alone."""
        return ColumnSet(self.key_id, self.contents[places], self.owners[places])

    def to_bytes(self) -> bytes:
        """The set as a file keeps it."""
        return self.key_id + self.contents.astype("<u8").tobytes() + self.owners.astype("<u8").tobytes()

    @staticmethod
    def from_bytes(kept: bytes) -> ColumnSet:
        """The inverse of `to_bytes`; BadInput where the length is wrong."""
        if len(kept) < HASH_BYTES or (len(kept) - HASH_BYTES) % (2 * HASH_BYTES):
            raise BadInput("a stored set of columns is damaged")
        contents, owners = np.frombuffer(kept, "<u8", offset=HASH_BYTES).reshape(2, -1)
        return ColumnSet(kept[:HASH_BYTES], contents, owners)


class ColumnHasher:
    """Hashes columns block by block. Features are taken in the order of their names, because their order in the file
    may change."""

    def __init__(self, key: bytes, features: Sequence[str] = ()) -> None:
        self._key = key
        self._order = np.argsort(np.array(features)) if features else None
        self._found: list[Hashes] = []

    def add(self, block: NDArray[np.float64]) -> None:
        """Hash the columns of the next block. All NaNs hash alike, and so do the two zeros."""
        rows = block.T if self._order is None else block.T[:, self._order]
        values = np.ascontiguousarray(rows, "<f8") + 0.0
        values[np.isnan(values)] = np.nan
        size, view = 8 * values.shape[1], values.data.cast("B")
        self._found.append(self._hashes(b"values", (view[at : at + size] for at in range(0, len(view), size))))

    def columns(self, empty: Sequence[int], owners: Sequence[str]) -> ColumnSet:
        """The set of all columns but the empty ones; `owners` names the person or id of each that is left, if any."""
        found = np.concatenate(self._found) if self._found else np.zeros(0, np.uint64)
        contents = _made_unique(np.delete(found, empty))
        key_id = hmac.digest(self._key, b"key", "sha256")[:HASH_BYTES]
        named = self._hashes(b"owner", (owner.encode() for owner in owners)) if owners else contents
        return ColumnSet(key_id, contents, named)

    def _hashes(self, purpose: bytes, messages: Iterable[bytes | memoryview]) -> Hashes:
        key = hmac.digest(self._key, purpose, "sha256")
        return np.frombuffer(b"".join(hmac.digest(key, one, "sha256")[:HASH_BYTES] for one in messages), "<u8")


def _made_unique(hashes: Hashes) -> Hashes:
    """Makes equal hashes unique by their rank among equals: a second column with the same values counts as one more
    column."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if ordered.size else np.zeros(0, int)
    ranks = np.empty(hashes.size, np.uint64)
    ranks[order] = np.arange(hashes.size) - np.repeat(begins, np.diff([*begins, hashes.size]))
    return hashes + ranks * _STEP
