"""The result of an SQL query, one row per sample: DuckDB for local files, SQLAlchemy for a database server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.method import FloatArray
from participant.data.arrays import require_extra
from participant.data.data_config import DataTable
from participant.data.layout import Layout, RowLabels, plan_layout
from participant.data.matrix import Matrix
from participant.data.raw_file_columns import spill
from participant.data.tables import BATCH_ROWS, SpillSettings, collect, named_matrix, plan_arrow


def read_query(table: DataTable, place: SpillSettings) -> Matrix:
    """The result of the query, written to disk batch by batch."""
    rows_are_samples = table.model_copy(update={"orientation": "samples-in-rows", "header": True})
    return _from_server(rows_are_samples, place) if table.url else _from_files(rows_are_samples, place)


def _from_files(table: DataTable, place: SpillSettings) -> Matrix:
    """DuckDB over files in the folder `path`, or over the DuckDB database `path`."""
    duckdb = require_extra("duckdb", "sql")
    settings: dict[str, Any] = {"autoinstall_known_extensions": "false"}  # a query must not download code
    folder = table.path is None or table.path.is_dir()
    try:
        database = duckdb.connect(":memory:" if folder else str(table.path), read_only=not folder, config=settings)
        if table.path is not None and folder:
            database.execute("SET file_search_path = ?", [str(table.path)])
        answer = database.sql(table.query)
        if answer is None:
            raise BadInput("[data] query returns no table", "write a SELECT")
        reader = answer.to_arrow_reader(BATCH_ROWS)
        layout = plan_arrow(reader.schema, table, table.origin, 0)
        return collect(iter(reader), layout, table, table.origin, place)
    except duckdb.Error as error:
        raise _refused("DuckDB", error) from None


def _from_server(table: DataTable, place: SpillSettings) -> Matrix:
    alchemy = require_extra("sqlalchemy", "sql")
    problems = require_extra("sqlalchemy.exc", "sql")
    try:
        engine = alchemy.create_engine(table.url)
    except (problems.NoSuchModuleError, ImportError) as error:
        hint = "write dialect+driver://user@host/database, and install the driver"
        raise BadInput(f"[data] url is not usable: {_first_line(error)}", hint) from None
    except (problems.SQLAlchemyError, ValueError):
        # The library's message may quote the URL, and with it a password.
        hint = "write dialect+driver://user@host:port/database; write special characters of a password as %40 (@)"
        raise BadInput("[data] url is not usable: it cannot be read as a URL", hint) from None
    try:
        with (
            engine.connect().execution_options(stream_results=True) as connection,
            closing(connection.execute(alchemy.text(table.query))) as answer,
        ):
            return _collected(answer, table, place)
    except problems.SQLAlchemyError as error:
        raise _refused(engine.url.host or engine.dialect.name, error) from None
    finally:
        engine.dispose()


def _collected(answer: Any, table: DataTable, place: SpillSettings) -> Matrix:
    names = list(answer.keys())
    labels = RowLabels()
    layout = plan_layout(names, {}, table, table.origin, 0)
    batches = _batches(answer.partitions(BATCH_ROWS), names, layout, labels, table.origin)
    columns = spill(batches, table.origin, place.directory, turned=True, memory_limit=place.memory_limit)
    return named_matrix(columns, layout, labels, table, table.origin, ())


def _batches(
    parts: Iterator[Sequence[Any]], names: Sequence[str], layout: Layout, labels: RowLabels, origin: str
) -> Iterator[FloatArray]:
    begin, places = 0, [names.index(name) for name in layout.numbers]
    for part in parts:
        labels.extend(layout, partial(_column, part, names))
        try:
            yield np.array([[np.nan if row[k] is None else float(row[k]) for k in places] for row in part])
        except (TypeError, ValueError):
            raise _not_a_number(part, begin, {names[k]: k for k in places}, origin) from None
        begin += len(part)


def _column(part: Sequence[Any], names: Sequence[str], name: str) -> list[Any]:
    place = names.index(name)
    return [row[place] for row in part]


def _not_a_number(part: Sequence[Any], begin: int, places: Mapping[str, int], origin: str) -> BadInput:
    for line, row in enumerate(part):
        for name, place in places.items():
            entry = row[place]
            if isinstance(entry, str | bytes) or (entry is not None and not hasattr(entry, "__float__")):
                hint = "leave the column out of the query, name it in [data] id_column or exclude, or convert it"
                return BadInput(f"the data {origin} has no number in row {begin + line + 1}, column {name}", hint)
    return BadInput(f"the data {origin} is not a table of numbers", "convert its columns in the query")


def _refused(who: str, error: Exception) -> BadInput:
    return BadInput(f"{who} does not answer [data] query: {_first_line(error)}", "try the query by hand")


def _first_line(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    return str(cause).strip().split("\n", maxsplit=1)[0]
