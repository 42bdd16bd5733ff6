"""Excel workbooks: one sheet, whose first line that is not empty names the columns. Every error names the cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.suggestions import did_you_mean, listed
from participant.data.arrays import require_extra
from participant.data.column_kinds import kind_of, number_in
from participant.data.data_config import DataTable
from participant.data.layout import plan_layout
from participant.data.matrix import Matrix
from participant.data.sample_ids import RowLabels
from participant.data.tables import SpillSettings, named_matrix

Line = tuple[int, Sequence[Any]]


def read_excel(path: Path, table: DataTable, place: SpillSettings) -> Matrix:
    """The sheet `[data] dataset`, or the only one; loaded as a whole, since a sheet has a million lines at most."""
    header, body = _lines(path, table)
    columns = {name: [line[k] for _, line in body] for k, name in enumerate(header)}
    kinds = {name: kind_of(entries, _decimal(table), table.missing_markers) for name, entries in columns.items()}
    layout = plan_layout(header, kinds, table, str(path), len(body))
    labels = RowLabels()
    labels.extend(layout, lambda name: [None if entry == "" else _label(entry) for entry in columns[name]])
    numbers = np.column_stack([_numbers(path, header.index(name), body, table) for name in layout.numbers])
    read = ArrayColumns(numbers.T if layout.samples_in_rows else numbers)
    return named_matrix(read, layout, labels, table, str(path), (layout.note,) if layout.note else ())


def _lines(path: Path, table: DataTable) -> tuple[list[str], list[Line]]:
    """The names of the columns, and the lines below them with their numbers; empty lines are left out."""
    rows = _sheet(path, table.dataset)
    lines = [(number, row) for number, row in enumerate(rows, start=1) if any(entry != "" for entry in row)]
    width = max((k + 1 for _, row in lines for k, entry in enumerate(row) if entry != ""), default=0)
    if len(lines) < 1 + table.header:
        raise BadInput(f"the data {path} is empty: it has no rows of numbers", "check [data] dataset, the sheet")
    cut = [(number, row[:width]) for number, row in lines]
    if not table.header:
        return [f"f{k}" for k in range(width)], cut
    return [_label(entry) for entry in cut[0][1]], cut[1:]


def _sheet(path: Path, wanted: str) -> Sequence[Sequence[Any]]:
    calamine = require_extra("python_calamine", "data")
    path.stat()
    try:
        book = calamine.CalamineWorkbook.from_path(str(path))
        names = list(book.sheet_names)
    except Exception:  # the reader's errors have no common base
        raise BadInput(f"the data {path} is not an Excel workbook, or is damaged", "save it again as .xlsx") from None
    if wanted and wanted not in names:
        hint = did_you_mean(wanted, names) or f"it has {listed(names)}"
        raise BadInput(f"the data {path} has no sheet {wanted}", hint)
    if not wanted and len(names) != 1:
        raise BadInput(f"the data {path} has the sheets {listed(names)}", "name one in [data] dataset")
    found: Sequence[Sequence[Any]] = book.get_sheet_by_name(wanted or names[0]).to_python(skip_empty_area=False)
    return found


def _numbers(path: Path, column: int, body: Sequence[Line], table: DataTable) -> FloatArray:
    absent = set(table.missing_markers)
    found = np.full(len(body), np.nan)
    for place, (number, line) in enumerate(body):
        entry = line[column]
        if isinstance(entry, str) and entry.strip() in absent:
            continue
        try:
            found[place] = number_in(entry, _decimal(table))
        except ValueError:
            hint = "correct it, leave the column out with [data] exclude, or add the entry to missing_markers"
            raise BadInput(f"the data {path} has no number in cell {_letters(column)}{number}", hint) from None
    return found


def _decimal(table: DataTable) -> str:
    return table.decimal or "."


def _label(entry: Any) -> str:
    """Text of a cell; Excel keeps 17 as 17.0."""
    return str(int(entry)) if isinstance(entry, float) and entry.is_integer() else str(entry).strip()


def _letters(column: int) -> str:
    letters = ""
    while column >= 0:
        letters, column = chr(65 + column % 26) + letters, column // 26 - 1
    return letters
