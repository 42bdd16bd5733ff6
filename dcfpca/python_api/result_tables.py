"""Tables of a result as columns of arrays, read from Parquet, or from CSV with the standard library alone."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput

TEXT_COLUMNS = frozenset({"id", "feature", "flag", "top_features"})
# The signs that begin a formula in one spreadsheet or another, their full-width forms among them.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20", "'")
_TRUTH = {"yes": True, "no": False, "true": True, "false": False}


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Columns by name, all of one length: text, numbers (NaN where empty), or booleans."""

    columns: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return next((len(column) for column in self.columns.values()), 0)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def rows(self) -> Iterator[dict[str, Any]]:
        """The lines, as plain Python values by column."""
        lists = [column.tolist() for column in self.columns.values()]
        for line in zip(*lists, strict=True):
            yield dict(zip(self.columns, line, strict=True))

    def to_pandas(self) -> Any:
        """The table as a pandas data frame."""
        return optional_library("pandas", "data frames").DataFrame(dict(self.columns))


def read_table(path: Path) -> Table:
    """A CSV file with a header, or the Parquet file beside it, which has all digits, where pyarrow can read it.

    Raises ValueError if the file is not a table.
    """
    exact = path.with_suffix(".parquet")
    if exact.exists() and find_spec("pyarrow") is not None:
        found = import_module("pyarrow.parquet").read_table(exact)
        return Table({name: _array(name, found.column(name)) for name in found.column_names})
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    if not lines or any(len(line) != len(lines[0]) for line in lines):
        raise ValueError(f"{path.name} is not a table")
    cells = [[line[place] for line in lines[1:]] for place in range(len(lines[0]))]
    return Table({name: _typed(name, column) for name, column in zip(lines[0], cells, strict=True)})


def escaped_cell(text: str) -> str:
    """Text for a cell of a CSV file: with a leading apostrophe where a spreadsheet would read it as a formula.

    Text that begins with an apostrophe gets another one, so that `read_table` gives back every text as it was.
    """
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _array(name: str, column: Any) -> NDArray[Any]:
    return np.array(column.to_pylist(), dtype=np.str_) if name in TEXT_COLUMNS else np.asarray(column.to_numpy())


def _typed(name: str, cells: list[str]) -> NDArray[Any]:
    """Ids stay text even if they look like numbers."""
    if name in TEXT_COLUMNS:
        return np.array([_unescaped(cell) for cell in cells], dtype=np.str_)
    if cells and all(cell.lower() in _TRUTH for cell in cells):
        return np.array([_TRUTH[cell.lower()] for cell in cells])
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells])
    except ValueError:
        return np.array(cells, dtype=np.str_)


def _unescaped(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA_STARTS) else cell


def optional_library(name: str, what: str) -> Any:
    """The module; BadInput says how to install it."""
    try:
        return import_module(name)
    except ImportError:
        raise BadInput(f"{what} need {name}, which is not installed", f"pip install {name}") from None
