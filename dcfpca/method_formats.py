"""Versions of what a method keeps between rounds: its memory at the aggregator, and its snapshot at each site.

They are stored with every run. A run whose memory or snapshot has another format than this software writes is paused,
not continued: the numbers would be taken for what they are not. Raise a version with every change of the names, shapes
or meaning of what is kept.
"""

from __future__ import annotations

from dcfpca.method_names import MethodName
from dcfpca.spec import RunSpec

_MEMORY: dict[MethodName, int] = {"subspace": 1, "gradient": 1}
_SNAPSHOT: dict[MethodName, int] = {"subspace": 1, "gradient": 1}
_STAGED_MEMORY = 1
_STAGED_SNAPSHOT = 2
_SCALED_MEMORY = 1
_SCALED_SNAPSHOT = 1
_PRIVATE = "private/3"
"""Of both: a private site keeps nothing between rounds, but the noise of a step must stay what it was."""


def memory_format(spec: RunSpec) -> str:
    """The format of the memory that the method of this spec keeps at the aggregator, such as `staged/1 subspace/1`."""
    return _format(spec, _MEMORY, _STAGED_MEMORY, _SCALED_MEMORY)


def snapshot_format(spec: RunSpec) -> str:
    """The format of the snapshot that the method of this spec keeps at a site."""
    return _format(spec, _SNAPSHOT, _STAGED_SNAPSHOT, _SCALED_SNAPSHOT)


def _format(spec: RunSpec, versions: dict[MethodName, int], staged: int, scaled: int) -> str:
    if spec.privacy is not None:
        return _PRIVATE
    inner = f"{spec.method}/{versions[spec.method]}"
    if spec.closing_rounds:
        inner = f"staged/{staged} {inner}"
    scaled_inner = f"scaled/{scaled} {inner}" if spec.scaling == "robust" else inner
    # The count keeps nothing of its own, but shifts the numbers of rounds.
    return f"counted/1 {scaled_inner}" if spec.missing_features == "allow" else scaled_inner
