"""The names of a matrix's rows, and the digest by which sites check that they have the same ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence


def features_digest(names: Sequence[str]) -> bytes:
    """SHA-256 over the names in order, encoded as JSON, so that different lists never have the same bytes."""
    return hashlib.sha256(json.dumps(list(names), ensure_ascii=False).encode()).digest()


def difference(ours: Sequence[str], theirs: Sequence[str], most: int = 8) -> str:
    """The names in `theirs` that `ours` lacks, at most `most` of them spelled out; empty if there are none."""
    known = set(ours)
    absent = [name for name in theirs if name not in known]
    shown = ", ".join(absent[:most])
    return shown if len(absent) <= most else f"{shown} and {len(absent) - most} more"
