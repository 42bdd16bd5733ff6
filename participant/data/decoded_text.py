"""Text as numbers: categories by their order or one feature each, dates as days, and "<0.5" as its bound. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.method import FloatArray

if TYPE_CHECKING:
    from participant.data.data_config import DataTable

_BOUND = re.compile(r"\s*[<>≤≥]\s*([+-]?\d[\d.,]*)\s*")
_EPOCH = date(1970, 1, 1)


def has_bounds(entries: Iterable[Any]) -> bool:
    """Whether any entry is a bound, as laboratories write what they cannot measure."""
    return any(isinstance(entry, str) and _BOUND.fullmatch(entry) for entry in entries)


def decoded_names(columns: Sequence[str], table: DataTable) -> tuple[str, ...]:
    """The features that these columns become: one of `one_hot` is a feature for each of its words."""
    return tuple(
        feature
        for name in columns
        for feature in ([f"{name}={word}" for word in table.categories[name]] if name in table.one_hot else [name])
    )


def decoded(entries: Sequence[Any], name: str, table: DataTable, decimal: str, origin: str) -> FloatArray:
    """The entries of a column as numbers, one column of them for each of `decoded_names`, NaN where missing; BadInput,
    without the entry, where one cannot be read."""
    absent, found = set(table.missing_markers), np.full(len(entries), np.nan)
    for place, entry in enumerate(entries):
        if entry is None or (isinstance(entry, str) and entry.strip() in absent):
            continue
        try:
            found[place] = _number(entry, name, table, decimal)
        except ValueError:
            listed = name in table.categories
            what = (
                "a value that [data] categories does not list" if listed else "an entry that is neither number nor date"
            )
            hint = "add it there, or to missing_markers" if listed else "correct it, or add it to missing_markers"
            raise BadInput(f"the data {origin} has in column {name} {what}", hint) from None
    if name not in table.one_hot:
        return found
    each = (found[:, None] == np.arange(len(table.categories[name]))).astype(np.float64)
    return np.where(np.isnan(found)[:, None], np.nan, each)


def _number(entry: Any, name: str, table: DataTable, decimal: str) -> float:
    if name in table.categories:
        return float(table.categories[name].index(str(entry).strip()))
    if name in table.dates:
        when = entry if isinstance(entry, date) else datetime.fromisoformat(str(entry).strip())
        return float(((when.date() if isinstance(when, datetime) else when) - _EPOCH).days)
    if isinstance(entry, int | float):
        return float(entry)
    bound = _BOUND.fullmatch(entry)
    return float((bound[1] if bound else entry).replace(decimal, "."))
