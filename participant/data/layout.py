"""Which columns of a table are features, which one holds ids, and whether its lines are samples. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dcfpca.errors import BadInput
from dcfpca.suggestions import did_you_mean, listed
from participant.data.column_kinds import ColumnKind
from participant.data.data_config import DataTable
from participant.data.matrix import check_names

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
    """The column that says whose each sample is; empty if there is none."""

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
    unusable = {name: kinds[name] for name in numbers if name in kinds and kinds[name].kind in ("date", "text")}
    if unusable:
        raise _not_numbers(unusable, table, origin, in_rows)
    return Layout(numbers, label, in_rows, note, person)


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
    if _names_features(names, kinds) and lines > len(names):
        told = f"read with samples in rows, because its columns are named like features ({listed(names, 3)})"
        return True, f"{told}; set orientation if that is wrong"
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
    told = "; ".join(f"column {name} holds {kind}" for name, kind in list(unusable.items())[:12])
    sentence = f"the data {origin} has columns that are not numbers: {told}"
    if not in_rows:
        first = json.dumps(next(iter(unusable)), ensure_ascii=False)
        hint = f'write feature_column = {first} in [data], or orientation = "samples-in-rows" if a line is a sample'
        return BadInput(sentence, hint)
    ids = [name for name, kind in unusable.items() if kind.distinct and not table.id_column][:1]
    rest = [*table.exclude, *(name for name in unusable if name not in ids)]
    keys = [f"id_column = {json.dumps(name, ensure_ascii=False)}" for name in ids]
    keys += [f"exclude = {json.dumps(rest, ensure_ascii=False)}"] if len(rest) > len(table.exclude) else []
    return BadInput(sentence, f"write {' and '.join(keys)} in [data], or store the categories as numbers")
