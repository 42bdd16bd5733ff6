"""What the columns of a table hold: numbers, dates or text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Literal

Kind = Literal["number", "date", "text", "empty"]

_DATE = re.compile(
    r"\d{4}([-/])\d{1,2}\1\d{1,2}([T ]\d{1,2}:\d{2}.*)?|\d{1,2}([./-])\d{1,2}\3(\d{4}|\d{2})( \d{1,2}:\d{2}.*)?"
)

# Laboratories write "<0.1" and spreadsheets "1,234": wrong entries of a column of numbers, not text.
_LIKE_A_NUMBER = re.compile(r"[<>≤≥~]?\s*[+-]?\d[\d.,' ]*%?")


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """The kind of a column; for text also how many different values were seen, and whether no two are equal."""

    kind: Kind
    values: int = 0
    distinct: bool = False

    def __str__(self) -> str:
        if self.kind == "date":
            return "dates"
        if self.kind != "text" or not self.values:
            return {"number": "numbers", "empty": "nothing"}.get(self.kind, self.kind)
        return "text, different in every line" if self.distinct else f"text with {self.values} values"


def kind_of(entries: Iterable[Any], decimal: str, missing_markers: Sequence[str]) -> ColumnKind:
    """The kind that most entries have: a single wrong entry is an error in that cell, not another kind of column."""
    absent = set(missing_markers)
    there = [entry for entry in entries if not (isinstance(entry, str) and entry.strip() in absent)]
    if not there:
        return ColumnKind("empty")
    if 2 * sum(is_number(entry, decimal) for entry in there) >= len(there):
        return ColumnKind("number")
    if 2 * sum(_is_date(entry) for entry in there) >= len(there):
        return ColumnKind("date")
    if 2 * sum(is_number(entry, decimal) or _is_like_a_number(entry) for entry in there) >= len(there):
        return ColumnKind("number")
    values = len({str(entry) for entry in there})
    return ColumnKind("text", values, values == len(there) > 2)


def number_in(entry: Any, decimal: str) -> float:
    """The entry as a number; ValueError if it is none."""
    if isinstance(entry, int | float):
        return float(entry)
    if not isinstance(entry, str) or "_" in entry or (decimal != "." and "." in entry):
        raise ValueError(entry)
    return float(entry if decimal == "." else entry.replace(decimal, "."))


def is_number(entry: Any, decimal: str) -> bool:
    """Whether the entry is a number, in text with this decimal point."""
    try:
        number_in(entry, decimal)
    except ValueError:
        return False
    return True


def _is_like_a_number(entry: Any) -> bool:
    return isinstance(entry, str) and _LIKE_A_NUMBER.fullmatch(entry.strip()) is not None


def _is_date(entry: Any) -> bool:
    if isinstance(entry, str):
        return _DATE.fullmatch(entry.strip()) is not None
    return isinstance(entry, date | datetime | time | timedelta)
