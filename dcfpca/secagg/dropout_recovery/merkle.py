"""A Merkle tree over the advertised keys: each participant proves to itself that its own keys shape the graph,
without being sent everybody's.
"""

from __future__ import annotations

from collections.abc import Sequence

from dcfpca.secagg.canonical_encoding import digest


def root_of(leaves: Sequence[bytes]) -> bytes:
    """The root over these leaves, in this order."""
    return _levels(leaves)[-1][0]


def paths_of(leaves: Sequence[bytes]) -> tuple[tuple[bytes, ...], ...]:
    """For every leaf, the siblings on its way up to the root."""
    levels = _levels(leaves)[:-1]
    return tuple(
        tuple(level[sibling] for depth, level in enumerate(levels) if (sibling := (index >> depth) ^ 1) < len(level))
        for index in range(len(leaves))
    )


def root_from_path(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root that a leaf at this index of `size` leads to along the path; None if the path has the wrong length."""
    node, siblings = leaf, list(path)
    while size > 1:
        if index ^ 1 < size:
            if not siblings:
                return None
            sibling = siblings.pop(0)
            node = _join(sibling, node) if index & 1 else _join(node, sibling)
        index, size = index >> 1, (size + 1) >> 1
    return None if siblings else node


def _levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    levels = [list(leaves)]
    while len(level := levels[-1]) > 1:
        pairs = [_join(left, right) for left, right in zip(level[::2], level[1::2], strict=False)]
        # A node without a sibling moves up as it is.
        levels.append(pairs + level[len(level) - len(level) % 2 :])
    return levels


def _join(left: bytes, right: bytes) -> bytes:
    return digest("merkle-node", left, right)
