"""Tables written in chunks, as CSV and as Parquet with the same columns."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

Column = Sequence[Any] | NDArray[Any]
Chunk = list[Column]


@dataclass(frozen=True, slots=True)
class Table:
    """Columns by name with their types (of Arrow), and the lines in chunks of one sequence per column."""

    columns: Mapping[str, str]
    chunks: Callable[[], Iterator[Chunk]]


def write_csv(path: Path, table: Table) -> None:
    """Numbers have six digits, truth is yes or no."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        for chunk in table.chunks():
            texts = [_texts(kind, values) for kind, values in zip(table.columns.values(), chunk, strict=True)]
            writer.writerows(zip(*texts, strict=True))


def _texts(kind: str, values: Column) -> list[str]:
    match kind:
        case "double":
            return [f"{value:.6g}" for value in values]
        case "bool":
            return ["yes" if value else "no" for value in values]
        case _:
            return [str(value) for value in values]


def can_write_parquet() -> bool:
    """Whether pyarrow is installed."""
    return find_spec("pyarrow") is not None


def write_parquet(path: Path, table: Table) -> None:
    """Numbers in full precision."""
    pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    schema = pa.schema([(name, getattr(pa, _ARROW[kind])()) for name, kind in table.columns.items()])
    with parquet.ParquetWriter(path, schema) as writer:
        for chunk in table.chunks():
            arrays = [pa.array(values, type=field.type) for values, field in zip(chunk, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


_ARROW = {"string": "string", "double": "float64", "bool": "bool_", "int64": "int64"}
