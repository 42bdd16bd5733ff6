"""Flags as tables: ids and feature names, the most significant first, and a stated false discovery rate."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from scipy import sparse

from dcfpca.rpca.method import ColumnScores
from participant.results import table_files
from participant.results.flag_tables import (
    OUTLIERS,
    SAMPLES,
    FlaggedResult,
    significant,
    tables_entry,
    write_flag_tables,
)


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def known() -> FlaggedResult:
    L = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
    S = np.zeros((2, 3))
    S[1, 2], S[0, 0] = 500.0, -4.0
    scores = ColumnScores(np.array([0.01, 0.9, 1e-12]), np.array([4.0, 0.5, 50.0]), np.zeros(3))
    return FlaggedResult(
        L, sparse.csc_array(S), np.array([1.0, 10.0]), scores, ("ann", "bob", "cem"), ("age", "chol"), 0.01
    )


def test_each_flagged_entry_is_named_with_what_was_observed_and_expected(tmp_path: Path) -> None:
    write_flag_tables(tmp_path, known())
    first, second = lines_of(tmp_path / OUTLIERS)
    assert (first["id"], first["feature"], first["observed"], first["expected"]) == ("cem", "chol", "530", "30")
    assert (second["id"], second["feature"], float(second["z"])) == ("ann", "age", -4.0)
    assert (first["flag"], second["flag"]) == ("high", "low")
    samples = lines_of(tmp_path / SAMPLES)
    assert [(line["id"], line["flagged"], line["top_features"]) for line in samples] == [
        ("cem", "yes", "chol"),
        ("ann", "no", "age"),
        ("bob", "no", ""),
    ]


def test_among_uniform_p_values_the_rate_of_runs_with_a_flag_is_no_larger_than_stated() -> None:
    draw = np.random.default_rng(5)
    flagged = [significant(draw.uniform(size=200), 0.05).any() for _ in range(2000)]
    # With nothing to find, the false discovery rate is the chance of any flag: 5 %, within four deviations.
    assert np.mean(flagged) <= 0.05 + 4.0 * np.sqrt(0.05 * 0.95 / 2000)


def test_parquet_holds_what_csv_does_under_the_types_that_the_manifest_states(tmp_path: Path) -> None:
    files = write_flag_tables(tmp_path, known())
    assert files == (OUTLIERS, "outliers.parquet", SAMPLES, "samples.parquet")
    stated = tables_entry(files)["columns"]
    for name in ("outliers", "samples"):
        table = parquet.read_table(tmp_path / f"{name}.parquet")
        assert {field.name: str(field.type) for field in table.schema} == stated[name]
        told = lines_of(tmp_path / f"{name}.csv")
        assert [line["id"] for line in told] == table.column("id").to_pylist()
        assert list(told[0]) == table.column_names
    assert parquet.read_table(tmp_path / "samples.parquet").column("flagged").to_pylist() == [True, False, False]


def test_without_pyarrow_there_is_csv_and_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "find_spec", lambda name: None)
    files = write_flag_tables(tmp_path, known())
    assert files == (OUTLIERS, SAMPLES)
    assert "pip install 'dcfpca[data]'" in tables_entry(files)["note"]


def test_a_result_without_flags_has_tables_without_lines(tmp_path: Path) -> None:
    write_flag_tables(tmp_path, replace(known(), S=sparse.csc_array((2, 3))))
    assert parquet.read_table(tmp_path / "outliers.parquet").num_rows == 0
    assert lines_of(tmp_path / OUTLIERS) == []
