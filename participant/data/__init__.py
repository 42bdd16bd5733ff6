"""The site's matrix: readers by format, and the facts that the review of a spec needs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from participant.data.data_config import DataTable
    from participant.data.facts import DataFacts, measure, without_empty_samples
    from participant.data.matrix import Matrix, select_features
    from participant.data.readers import FORMATS, open_columns, open_matrix, read_matrix

__all__ = [
    "FORMATS",
    "DataFacts",
    "DataTable",
    "Matrix",
    "measure",
    "open_columns",
    "open_matrix",
    "read_matrix",
    "select_features",
    "without_empty_samples",
]

_NAMES = {
    "participant.data.data_config": ("DataTable",),
    "participant.data.facts": ("DataFacts", "measure", "without_empty_samples"),
    "participant.data.matrix": ("Matrix", "select_features"),
    "participant.data.readers": ("FORMATS", "open_columns", "open_matrix", "read_matrix"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a name only when it is asked for: every command reads the `[data]` table, few read the data."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
