"""What the columns of a table hold, which are features, which one holds ids, and whether lines are samples. Pure.

An id or a person's label never becomes part of a sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np

from dcfpca.errors import BadInput, did_you_mean, listed
from participant.data.data_config import DataTable
from participant.data.decoded_text import decoded_names, has_bounds
from participant.data.matrix import Indices, Matrix, check_names

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
    bounds: bool = False
    """Whether it is numbers of which some are bounds, such as <0.5."""

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
        return ColumnKind("number", bounds=has_bounds(there))
    if 2 * sum(_is_date(entry) for entry in there) >= len(there):
        return ColumnKind("date")
    if 2 * sum(is_number(entry, decimal) or _is_like_a_number(entry) for entry in there) >= len(there):
        return ColumnKind("number", bounds=has_bounds(there))
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


_WILD = ("*", "?", "[")


@dataclass(frozen=True, slots=True)
class Layout:
    """How to read a table. `numbers` are the columns to read as numbers, `label` the one with names or ids.

    `samples_in_rows`: a line is a sample, `numbers` are the features and `label` the id column; otherwise a line is a
    feature, `numbers` are the samples and `label` the column with the features' names.
    """

    numbers: tuple[str, ...]
    label: str
    samples_in_rows: bool
    note: str = ""
    person: str = ""
    """The column that names the person of each sample; empty if there is none."""
    decoded: tuple[str, ...] = ()
    """Those of `numbers` that are text: categories, dates, and numbers with bounds."""
    features: tuple[str, ...] = ()
    """What `numbers` become: the same but for categories that are a feature for each word."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns to read as text."""
        return tuple(dict.fromkeys(name for name in (self.label, self.person) if name))


def plan_layout(
    names: Sequence[str], kinds: Mapping[str, ColumnKind], table: DataTable, origin: str, lines: int
) -> Layout:
    """The layout of a table with these columns; BadInput names every column that cannot be read as configured."""
    check_names(names, origin)
    in_rows, note = _orientation(names, kinds, table, origin, lines)
    label = table.id_column if in_rows else table.feature_column
    _check_label(names, label, "id_column" if in_rows else "feature_column", origin)
    person = table.person_column
    if person and not in_rows:
        hint = "give [data] persons, a file with one line per sample, or a table with a line for each sample"
        raise BadInput(
            f"the data {origin} has no lines of samples, of which [data] person_column could say whose", hint
        )
    _check_label(names, person, "person_column", origin)
    rest = [name for name in names if not name or name not in (label, person)]
    numbers = choose_features(rest, table.features, table.exclude, origin, "column") if in_rows else tuple(rest)
    if in_rows:
        _require_names(names, numbers, origin)
    named = {*table.categories, *table.dates}
    if unknown := sorted(named - set(names)):
        hint = did_you_mean(unknown[0], names) or "correct the name there"
        raise BadInput(f"the data {origin} has no column {unknown[0]}, which [data] categories or dates names", hint)
    wordy = {name: kinds[name] for name in numbers if name in kinds and kinds[name].kind in ("date", "text")}
    if unusable := {name: kind for name, kind in wordy.items() if name not in named}:
        raise _not_numbers(unusable, table, origin, in_rows)
    bounds = [name for name in numbers if name in kinds and kinds[name].bounds]
    if bounds:
        told = f"entries such as <0.5 are read as their bound: {listed(bounds)}"
        note = f"{note}; {told}" if note else told
    text, features = tuple(name for name in numbers if name in named or name in bounds), decoded_names(numbers, table)
    check_names(features, origin)
    return Layout(numbers, label, in_rows, note, person, text, features)


def choose_features(
    names: Sequence[str], wanted: Sequence[str], exclude: Sequence[str], origin: str, what: str = "feature"
) -> tuple[str, ...]:
    """The names that `features` gives, in its order (of a pattern in theirs), without those that `exclude` gives."""
    chosen = _matching(names, wanted, origin, what) if wanted else list(names)
    dropped = set(_matching(names, exclude, origin, what))
    left = tuple(name for name in chosen if name not in dropped)
    if not left:
        raise BadInput(f"the data {origin} has no {what} left", "see [data] features and exclude")
    return left


def _matching(names: Sequence[str], patterns: Sequence[str], origin: str, what: str) -> list[str]:
    found: dict[str, None] = {}
    absent = []
    known = set(names)
    for pattern in patterns:
        wild = any(sign in pattern for sign in _WILD)
        matches = [pattern] if pattern in known else [name for name in names if wild and fnmatchcase(name, pattern)]
        found.update(dict.fromkeys(matches))
        if not matches:
            absent.append(pattern)
    if absent:
        hint = did_you_mean(absent[0], names) or f"it has {listed(names, 20)}"
        raise BadInput(f"the data {origin} has no {what} {listed(absent)}", hint)
    return list(found)


def _orientation(
    names: Sequence[str], kinds: Mapping[str, ColumnKind], table: DataTable, origin: str, lines: int
) -> tuple[bool, str]:
    """Whether lines are samples; where it is not configured the names decide, and a note says so."""
    named = [
        name
        for name in (table.id_column, table.person_column, *table.features, *table.exclude)
        if name and name in names
    ]
    if table.orientation == "samples-in-rows":
        return True, ""
    if not table.header or table.feature_column:
        return False, ""
    if table.orientation and named:
        hint = 'its lines are samples: write orientation = "samples-in-rows"'
        raise BadInput(f"the data {origin} has {named[0]} as a column, not as a line", hint)
    if table.orientation:
        return False, ""
    if named:
        return True, f"read with samples in rows, because {named[0]} is one of its columns"
    words = [name for name in names if name in kinds and kinds[name].kind == "text" and not kinds[name].distinct]
    if words and lines > len(names):
        reason = f"read with samples in rows, because column {words[0]} holds the same words in several lines"
        return True, f"{reason}; set orientation if that is wrong"
    if _names_features(names, kinds) and lines > len(names):
        reason = f"read with samples in rows, because its columns are named like features ({listed(names, 3)})"
        return True, f"{reason}; set orientation if that is wrong"
    return False, ""


def _names_features(names: Sequence[str], kinds: Mapping[str, ColumnKind]) -> bool:
    """Whether the header has words: samples are mostly numbered (s1, s2, CL0001), features are not."""
    numeric = [name for name in names if name not in kinds or kinds[name].kind == "number"]
    numbered = [name for name in numeric if not name or any(sign.isdigit() for sign in name)]
    return bool(numeric) and 2 * len(numbered) < len(numeric)


def _check_label(names: Sequence[str], label: str, key: str, origin: str) -> None:
    if label and label not in names:
        hint = did_you_mean(label, names) or f"its columns are {listed(names, 20)}"
        raise BadInput(f"the data {origin} has no column {label}, which [data] {key} names", hint)


def _require_names(names: Sequence[str], numbers: Sequence[str], origin: str) -> None:
    """Refuse a column without a name: it is more often a row number than a feature."""
    if "" in numbers:
        hint = "name it if it is a feature, or choose the features with [data] features"
        raise BadInput(f"the data {origin} has no name for column {list(names).index('') + 1}", hint)


def _not_numbers(unusable: Mapping[str, ColumnKind], table: DataTable, origin: str, in_rows: bool) -> BadInput:
    """One error for all columns that are not numbers, with the lines to write in `[data]`."""
    listed_columns = "; ".join(f"column {name} holds {kind}" for name, kind in list(unusable.items())[:12])
    sentence = f"the data {origin} has columns that are not numbers: {listed_columns}"
    if not in_rows:
        first = json.dumps(next(iter(unusable)), ensure_ascii=False)
        hint = f'if lines are samples, write orientation = "samples-in-rows" in [data]; else feature_column = {first}'
        return BadInput(sentence, hint)
    ids = [name for name, kind in unusable.items() if kind.distinct and not table.id_column][:1]
    rest = [*table.exclude, *(name for name in unusable if name not in ids)]
    keys = [f"id_column = {json.dumps(name, ensure_ascii=False)}" for name in ids]
    keys += [f"exclude = {json.dumps(rest, ensure_ascii=False)}"] if len(rest) > len(table.exclude) else []
    return BadInput(
        sentence,
        f"write {' and '.join(keys)} in [data], or name them in [data] categories (one_hot if without order) or dates",
    )


@dataclass(frozen=True, slots=True)
class RowLabels:
    """The text entries of a table: ids of samples or names of features, and the person of each sample."""

    names: list[str | None] = field(default_factory=list)
    persons: list[str | None] = field(default_factory=list)

    def extend(self, layout: Layout, read: Callable[[str], Sequence[Any]]) -> None:
        """Take up further lines; `read` gives their entries in a column by its name."""
        for name, into in ((layout.label, self.names), (layout.person, self.persons)):
            if name:
                into.extend(None if entry is None else str(entry) for entry in read(name))


def check_ids(labels: Sequence[str | None], origin: str, column: str = "") -> tuple[str, ...]:
    """The labels without surrounding blanks; BadInput names the place of one that is empty or occurs twice.

    A label may identify a person, so it never appears in the error.
    """
    seen: dict[str, int] = {}
    where = f", column {column}" if column else ""
    for place, label in enumerate(labels, start=1):
        text = (label or "").strip()
        if not text:
            raise BadInput(f"the data {origin} has no id in entry {place}{where}", "give every sample an id")
        if text in seen:
            problem = f"the same id in entries {seen[text]} and {place}{where}"
            raise BadInput(f"the data {origin} has {problem}", "give every sample an id of its own")
        seen[text] = place
    return tuple(seen)


def check_persons(labels: Sequence[str | None], origin: str) -> tuple[str, ...]:
    """The person of each sample, without surrounding blanks; BadInput names the position of one that is empty.

    A label identifies a person, so it never appears in the error.
    """
    found = tuple((label or "").strip() for label in labels)
    if "" in found:
        problem = f"does not say whose sample {found.index('') + 1} is ([data] person_column, persons)"
        raise BadInput(f"the data {origin} {problem}", "name a person for every sample, the same one for all of theirs")
    return found


def first_of_each_person(matrix: Matrix) -> Indices:
    """The first sample of each person, in order: which one it is depends on that person's samples alone."""
    _, first = np.unique(np.asarray(matrix.persons, dtype=object), return_index=True)
    return np.sort(first).astype(np.intp)
