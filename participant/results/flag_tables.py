"""The flags of a result as tables for people: one line for each flagged entry, one for each sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.method import ColumnScores, FloatArray
from dcfpca.rpca.refinement.null import two_sided
from participant.results.table_files import Chunk, Table, can_write_parquet, write_csv, write_parquet

OUTLIERS, SAMPLES = "outliers.csv", "samples.csv"
SCHEMA = 1
"""Raised when a column of a table is added, removed or changes its meaning, from one release to the next."""
OUTLIER_COLUMNS = {
    "id": "string",
    "feature": "string",
    "observed": "double",
    "expected": "double",
    "deviation": "double",
    "z": "double",
    "p_value": "double",
    "flag": "string",
}
SAMPLE_COLUMNS = {
    "id": "string",
    "p_value": "double",
    "flagged": "bool",
    "flagged_entries": "int64",
    "largest_z": "double",
    "distance": "double",
    "top_features": "string",
}
TOP_FEATURES = 3
CHUNK = 1 << 16
WITHOUT_PARQUET = "Parquet files were left out, because pyarrow is not installed: pip install 'dcfpca[data]'"


@dataclass(frozen=True, slots=True, eq=False)
class FlaggedResult:
    """What the tables are made from. `deviation` is the null's deviation of each feature, in the data's units."""

    L: FloatArray
    S: scipy.sparse.csc_array
    deviation: FloatArray
    scores: ColumnScores
    ids: Sequence[str]
    features: Sequence[str]
    rate: float  # samples below this false discovery rate are flagged


def write_flag_tables(target: Path, result: FlaggedResult) -> tuple[str, ...]:
    """Write both tables, the most significant lines first, as CSV and, if pyarrow is there, as Parquet; their names."""
    tables = (
        (OUTLIERS, Table(OUTLIER_COLUMNS, lambda: _entries(result))),
        (
            SAMPLES,
            Table(SAMPLE_COLUMNS, lambda: _samples(result)),
        ),
    )
    written = []
    for name, table in tables:
        write_csv(target / name, table)
        written.append(name)
        if can_write_parquet():
            parquet = Path(name).with_suffix(".parquet").name
            write_parquet(target / parquet, table)
            written.append(parquet)
    return tuple(written)


def tables_entry(files: Sequence[str]) -> dict[str, Any]:
    """What the manifest says about the tables."""
    columns = {"outliers": OUTLIER_COLUMNS, "samples": SAMPLE_COLUMNS}
    note = {} if any(name.endswith(".parquet") for name in files) else {"note": WITHOUT_PARQUET}
    units = "observed, expected and deviation are in the units of the data; z is in deviations of the feature's noise"
    return {"schema": SCHEMA, "files": list(files), "columns": columns, "units": units, **note}


def significant(p_values: FloatArray, rate: float) -> NDArray[np.bool_]:
    """Benjamini–Hochberg: which of these p-values are significant at this false discovery rate."""
    order = np.argsort(p_values)
    below = p_values[order] <= rate * np.arange(1, p_values.size + 1) / max(p_values.size, 1)
    last = int(np.flatnonzero(below)[-1]) if below.any() else -1
    found = np.zeros(p_values.size, dtype=bool)
    found[order[: last + 1]] = True
    return found


def _entries(result: FlaggedResult) -> Iterator[Chunk]:
    places = scipy.sparse.coo_array(result.S)
    z = places.data / result.deviation[places.row]
    order = np.argsort(-np.abs(z), kind="stable")
    for start in range(0, order.size, CHUNK):
        chosen = order[start : start + CHUNK]
        rows, columns, off = places.row[chosen], places.col[chosen], places.data[chosen]
        expected = np.asarray(result.L[rows, columns], dtype=np.float64)
        yield [
            [result.ids[column] for column in columns],
            [_feature(result, int(row)) for row in rows],
            expected + off,
            expected,
            off,
            z[chosen],
            two_sided(z[chosen]),
            np.where(off > 0, "high", "low").tolist(),
        ]


def _samples(result: FlaggedResult) -> Iterator[Chunk]:
    scores, S = result.scores, scipy.sparse.csc_array(result.S)
    odd, counts = significant(scores.p_value, result.rate), np.diff(S.indptr)
    # A p-value may be zero in doubles; the largest z goes on telling samples apart.
    order = np.lexsort((-scores.largest_z, scores.p_value))
    for start in range(0, order.size, CHUNK):
        chosen = order[start : start + CHUNK]
        yield [
            [result.ids[column] for column in chosen],
            scores.p_value[chosen],
            odd[chosen],
            counts[chosen],
            scores.largest_z[chosen],
            scores.distance[chosen],
            [_top_features(result, S, int(column)) for column in chosen],
        ]


def _top_features(result: FlaggedResult, S: scipy.sparse.csc_array, column: int) -> str:
    own = slice(S.indptr[column], S.indptr[column + 1])
    rows = S.indices[own]
    sizes = np.abs(S.data[own]) / result.deviation[rows]
    return "; ".join(_feature(result, int(row)) for row in rows[np.argsort(-sizes)[:TOP_FEATURES]])


def _feature(result: FlaggedResult, row: int) -> str:
    return result.features[row] if result.features else str(row)
