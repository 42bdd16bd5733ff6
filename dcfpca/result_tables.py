"""Tables of a result as columns of arrays, read from CSV with the standard library alone."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.data_frames import optional_library

TEXT_COLUMNS = frozenset({"id", "feature", "top_features"})
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
    """A CSV file with a header; ValueError if it is not one."""
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    if not lines or any(len(line) != len(lines[0]) for line in lines):
        raise ValueError(f"{path.name} is not a table")
    cells = [[line[place] for line in lines[1:]] for place in range(len(lines[0]))]
    return Table({name: _typed(name, column) for name, column in zip(lines[0], cells, strict=True)})


def _typed(name: str, cells: list[str]) -> NDArray[Any]:
    """Ids stay text even if they look like numbers."""
    if name in TEXT_COLUMNS:
        return np.array(cells, dtype=np.str_)
    if cells and all(cell.lower() in _TRUTH for cell in cells):
        return np.array([_TRUTH[cell.lower()] for cell in cells])
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells])
    except ValueError:
        return np.array(cells, dtype=np.str_)
