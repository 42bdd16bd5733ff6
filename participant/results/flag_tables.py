"""The flags of a result as tables for people: one line for each flagged entry, one for each sample.

They are opened in spreadsheets, and whoever wrote an id or the name of a feature must not thereby write a formula: in
CSV, text that begins like one gets a leading apostrophe. Parquet has the text as it is.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.python_api.result_files import escaped_cell
from dcfpca.rpca.method import ColumnScores, FloatArray, Instrument
from participant.data.rules import Breach
from participant.findings.causes import Cause
from participant.results.block_files import MOST_LISTED, FlaggedEntries, WrittenBlocks

OUTLIERS, SAMPLES, INSTRUMENTS, RULES = "outliers.csv", "samples.csv", "instruments.csv", "rules.csv"
SCHEMA = 3
"""Raised when a column of a table is added, removed or changes its meaning, from one release to the next."""
OUTLIER_COLUMNS = {
    "id": "string",
    "feature": "string",
    "observed": "double",
    "expected": "double",
    "deviation": "double",
    "z": "double",
    "exceeded_by": "double",
    "values": "double",
    "consortium_z": "double",
    "unusual_for": "string",
    "flag": "string",
    "cause": "string",
    "corrected": "double",
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
INSTRUMENT_COLUMNS = {
    "feature": "string",
    "kind": "string",
    "first": "string",
    "last": "string",
    "samples": "int64",
    "amount": "double",
}
ALL_SITES, THIS_SITE = "all sites", "this site only"
RULE_COLUMNS = {"id": "string", "feature": "string", "observed": "double", "rule": "string"}
TOP_FEATURES = 3
CHUNK = 1 << 13
WITHOUT_PARQUET = "Parquet files were left out, because pyarrow is not installed: pip install 'dcfpca[data]'"
_ARROW = {"string": "string", "double": "float64", "bool": "bool_", "int64": "int64"}

Chunk = list[Sequence[Any] | NDArray[Any]]
"""Some lines of a table: one sequence per column."""


@dataclass(frozen=True, slots=True, eq=False)
class FlaggedResult:
    """What the tables are made from. `deviation` is the null's deviation of each feature, in the data's units."""

    entries: FlaggedEntries
    per_sample: NDArray[np.int64]  # flagged entries of each sample, listed or not
    deviation: FloatArray
    scores: ColumnScores
    ids: Sequence[str]
    features: Sequence[str]
    rate: float  # samples below this false discovery rate are flagged
    causes: Sequence[Cause | None]  # of every entry
    instruments: Sequence[Instrument] = ()
    cut: float = np.nan  # of consortium_z: beyond it, the consortium finds an entry unusual

    @staticmethod
    def of(
        written: WrittenBlocks,
        deviation: FloatArray,
        ids: Sequence[str],
        features: Sequence[str],
        rate: float,
        causes: Sequence[Cause | None],
        cut: float = np.nan,
    ) -> FlaggedResult:
        """Of written blocks that have scores."""
        assert written.scores is not None
        flags, counts, scores = written.flags, written.per_sample, written.scores
        return FlaggedResult(flags, counts, deviation, scores, ids, features, rate, causes, written.instruments, cut)

    def sentences(self) -> list[str]:
        """One for each instrument that repeats or drifts."""
        return [_sentence(self, one) for one in self.instruments]


def write_flag_tables(target: Path, result: FlaggedResult) -> tuple[str, ...]:
    """Write the tables, the most significant lines first, as CSV and, if pyarrow is there, as Parquet; their names.

    Instruments have one only where one repeats or drifts.
    """
    written = []
    tables = [(OUTLIERS, OUTLIER_COLUMNS, _entries), (SAMPLES, SAMPLE_COLUMNS, _samples)]
    if result.instruments:
        tables.append((INSTRUMENTS, INSTRUMENT_COLUMNS, _instruments))
    for name, columns, lines in tables:
        write_csv(target / name, columns, lines(result))
        written.append(name)
        if find_spec("pyarrow") is not None:
            parquet = Path(name).with_suffix(".parquet").name
            write_parquet(target / parquet, columns, lines(result))
            written.append(parquet)
    return tuple(written)


def write_rule_table(target: Path, found: Sequence[Breach], ids: Sequence[str]) -> list[str]:
    """Write the values that break a rule of the site; returns the name of the file, nothing where there is none."""
    if not found:
        return []
    lines: Chunk = [
        [ids[one.column] for one in found],
        [one.feature for one in found],
        [one.observed for one in found],
        [one.rule for one in found],
    ]
    write_csv(target / RULES, RULE_COLUMNS, [lines])
    return [RULES]


def tables_entry(files: Sequence[str], flagged: int = 0) -> dict[str, Any]:
    """What the manifest says about the tables of a result with so many flagged entries."""
    columns = {"outliers": OUTLIER_COLUMNS, "samples": SAMPLE_COLUMNS}
    if INSTRUMENTS in files:
        columns["instruments"] = INSTRUMENT_COLUMNS
    if RULES in files:
        columns["rules"] = RULE_COLUMNS
    notes = [] if any(name.endswith(".parquet") for name in files) else [WITHOUT_PARQUET]
    if flagged > MOST_LISTED:
        notes.append(f"Of {flagged:,} flagged entries, outliers lists the {MOST_LISTED:,} furthest off; S.npz has all")
    note = {"note": ". ".join(notes)} if notes else {}
    units = (
        "observed, expected and deviation are in the units of the data; z is in deviations of the feature's noise "
        "at this site, consortium_z in those of all sites, from what all sites share"
    )
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
    found = result.entries
    z = np.where(np.isnan(found.z), found.off / result.deviation[found.rows], found.z)
    order = np.argsort(-np.abs(z), kind="stable")
    for start in range(0, order.size, CHUNK):
        chosen = order[start : start + CHUNK]
        expected, off = found.expected[chosen], found.off[chosen]
        yield [
            [result.ids[column] for column in found.columns[chosen]],
            [_feature(result, int(row)) for row in found.rows[chosen]],
            expected + off,
            expected,
            off,
            z[chosen],
            found.exceeded_by[chosen],
            found.values[chosen],
            found.consortium_z[chosen],
            _unusual_for(found.consortium_z[chosen], result.cut),
            np.where(off > 0, "high", "low").tolist(),
            [cause.sentence if cause else "" for cause in (result.causes[k] for k in chosen)],
            [cause.corrected if cause else np.nan for cause in (result.causes[k] for k in chosen)],
        ]


def _unusual_for(consortium_z: FloatArray, cut: float) -> list[str]:
    """Both judgements of flagged entries as words; empty where there is one judgement only."""
    if np.isnan(cut):
        return [""] * consortium_z.size
    return [ALL_SITES if size > cut else THIS_SITE for size in np.abs(consortium_z)]


def _samples(result: FlaggedResult) -> Iterator[Chunk]:
    scores, count = result.scores, result.scores.p_value.size
    odd, bounds = (
        significant(scores.p_value, result.rate),
        np.searchsorted(result.entries.columns, np.arange(count + 1)),
    )
    # A p-value may be zero in doubles; the largest z goes on telling samples apart.
    order = np.lexsort((-scores.largest_z, scores.p_value))
    for start in range(0, order.size, CHUNK):
        chosen = order[start : start + CHUNK]
        yield [
            [result.ids[column] for column in chosen],
            scores.p_value[chosen],
            odd[chosen],
            result.per_sample[chosen],
            scores.largest_z[chosen],
            scores.distance[chosen],
            [_top_features(result, slice(bounds[column], bounds[column + 1])) for column in chosen],
        ]


def _instruments(result: FlaggedResult) -> Iterator[Chunk]:
    found = result.instruments
    yield [
        [_feature(result, one.feature) for one in found],
        [one.kind for one in found],
        [result.ids[one.first] for one in found],
        [result.ids[one.last] for one in found],
        [one.samples for one in found],
        [one.amount for one in found],
    ]


def _sentence(result: FlaggedResult, found: Instrument) -> str:
    feature, first, last = _feature(result, found.feature), result.ids[found.first], result.ids[found.last]
    name = feature if result.features else f"Feature {feature}"
    return f"{name} {instrument_text(found.kind, found.amount, found.samples)}, from {first} to {last}."


def instrument_text(kind: str, amount: float, samples: int) -> str:
    """What an instrument does that fails."""
    if kind == "stuck":
        return f"repeats {amount:.6g} in {samples} samples in a row"
    return f"drifts by {amount:+.3g} over {samples} samples (unless they are sorted by it)"


def _top_features(result: FlaggedResult, own: slice) -> str:
    rows = result.entries.rows[own]
    sizes = np.abs(result.entries.off[own]) / result.deviation[rows]
    return "; ".join(_feature(result, int(row)) for row in rows[np.argsort(-sizes)[:TOP_FEATURES]])


def _feature(result: FlaggedResult, row: int) -> str:
    return result.features[row] if result.features else str(row)


def write_csv(path: Path, columns: Mapping[str, str], chunks: Iterable[Chunk]) -> None:
    """Numbers have six digits, truth is yes or no."""
    texts: dict[str, Callable[[Any], str]] = {
        "double": lambda value: f"{value:.6g}",
        "bool": lambda value: "yes" if value else "no",
        "int64": str,
        "string": escaped_cell,
    }
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for chunk in chunks:
            cells = [map(texts[kind], values) for kind, values in zip(columns.values(), chunk, strict=True)]
            writer.writerows(zip(*cells, strict=True))


def write_parquet(path: Path, columns: Mapping[str, str], chunks: Iterable[Chunk]) -> None:
    """Numbers in full precision, texts as they are."""
    pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    schema = pa.schema([(name, getattr(pa, _ARROW[kind])()) for name, kind in columns.items()])
    with parquet.ParquetWriter(path, schema) as writer:
        for chunk in chunks:
            arrays = [pa.array(values, type=field.type) for values, field in zip(chunk, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
