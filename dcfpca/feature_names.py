"""The names of a matrix's rows, and the digest by which sites find out that they mean the same ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence


def features_digest(names: Sequence[str]) -> bytes:
    """SHA-256 over the names in order; JSON, so that no choice of names runs into its neighbour."""
    return hashlib.sha256(json.dumps(list(names), ensure_ascii=False).encode()).digest()


def difference(ours: Sequence[str], theirs: Sequence[str], most: int = 8) -> str:
    """What theirs has that ours lacks, in words; empty when ours has all of it."""
    known = set(ours)
    absent = [name for name in theirs if name not in known]
    shown = ", ".join(absent[:most])
    return shown if len(absent) <= most else f"{shown} and {len(absent) - most} more"
