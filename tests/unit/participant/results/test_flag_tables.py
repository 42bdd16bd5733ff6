"""Flags as tables: ids and feature names, the most significant first, and a stated false discovery rate."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from scipy import sparse

from dcfpca.python_api.result_files import read_table
from dcfpca.rpca.method import ColumnScores, ResultBlock
from participant.findings.causes import Cause
from participant.results import block_files, flag_tables
from participant.results.block_files import FlaggedEntries, flagged_entries, write_blocks
from participant.results.flag_tables import (
    OUTLIERS,
    SAMPLES,
    FlaggedResult,
    significant,
    tables_entry,
    write_flag_tables,
)

CAUSES = (None, Cause("decimal", "ten times too large", 53.0))


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def known() -> FlaggedResult:
    L = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
    S = np.zeros((2, 3))
    S[1, 2], S[0, 0] = 500.0, -4.0
    scores = ColumnScores(np.array([0.01, 0.9, 1e-12]), np.array([4.0, 0.5, 50.0]), np.zeros(3))
    entries = flagged_entries(ResultBlock(0, L, sparse.csc_array(S), np.zeros((3, 0))))
    names = ("ann", "bob", "cem"), ("age", "chol")
    return FlaggedResult(entries, np.array([1, 0, 1]), np.array([1.0, 10.0]), scores, *names, 0.01, CAUSES)


def test_each_flagged_entry_is_named_with_what_was_observed_and_expected(tmp_path: Path) -> None:
    write_flag_tables(tmp_path, known())
    first, second = lines_of(tmp_path / OUTLIERS)
    assert (first["id"], first["feature"], first["observed"], first["expected"]) == ("cem", "chol", "530", "30")
    assert (second["id"], second["feature"], float(second["z"])) == ("ann", "age", -4.0)
    assert (first["flag"], second["flag"]) == ("high", "low")
    assert (first["cause"], first["corrected"], second["cause"]) == ("ten times too large", "53", "")
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
    monkeypatch.setattr(flag_tables, "find_spec", lambda name: None)
    files = write_flag_tables(tmp_path, known())
    assert files == (OUTLIERS, SAMPLES)
    assert "pip install 'dcfpca[data]'" in tables_entry(files)["note"]


def test_a_result_without_flags_has_tables_without_lines(tmp_path: Path) -> None:
    write_flag_tables(tmp_path, replace(known(), entries=FlaggedEntries(*8 * [np.zeros(0, int)])))
    assert parquet.read_table(tmp_path / "outliers.parquet").num_rows == 0
    assert lines_of(tmp_path / OUTLIERS) == []


FORMULAS = ("=1+1", "+1", "-cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1", "'=1")


@pytest.mark.parametrize("text", FORMULAS)
def test_text_of_a_csv_cell_is_never_a_formula_and_is_read_back_as_it_was(tmp_path: Path, text: str) -> None:
    write_flag_tables(tmp_path, replace(known(), ids=("ann", "bob", text), features=("age", text)))
    for name, cells in ((OUTLIERS, ("id", "feature")), (SAMPLES, ("id", "top_features"))):
        line = lines_of(tmp_path / name)[0]
        assert [line[cell] for cell in cells] == [f"'{text}", f"'{text}"]
        for path in tmp_path.glob("*.parquet"):
            path.unlink()
        assert [str(read_table(tmp_path / name)[cell][0]) for cell in cells] == [text, text]


def test_negative_numbers_of_a_csv_stay_numbers(tmp_path: Path) -> None:
    write_flag_tables(tmp_path, known())
    assert [line["deviation"] for line in lines_of(tmp_path / OUTLIERS)] == ["500", "-4"]


def test_a_table_is_read_with_all_digits_where_parquet_has_them(tmp_path: Path) -> None:
    exact = replace(known().entries, off=np.array([-4.123456789012345, 500.0]))
    write_flag_tables(tmp_path, replace(known(), entries=exact))
    assert read_table(tmp_path / OUTLIERS)["deviation"].tolist() == [500.0, -4.123456789012345]
    (tmp_path / "outliers.parquet").unlink()
    assert read_table(tmp_path / OUTLIERS)["deviation"].tolist() == [500.0, -4.12346]


def test_of_more_flagged_entries_than_tables_list_the_furthest_off_are_kept_and_all_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_files, "MOST_LISTED", 4)
    rng = np.random.default_rng(3)
    off = np.where(rng.random((5, 12)) < 0.5, rng.standard_normal((5, 12)), 0.0)
    cuts, none = [slice(start, start + 3) for start in range(0, 12, 3)], np.zeros((3, 0))
    parts = [ResultBlock(cut.start, np.zeros((5, 3)), sparse.csc_array(off[:, cut]), none) for cut in cuts]
    written = write_blocks(tmp_path, parts, off.shape, np.zeros(0, dtype=bool))
    furthest = np.sort(np.abs(off), axis=None)[-4:]
    assert sorted(np.abs(written.flags.off)) == list(furthest)
    assert list(written.flags.columns) == sorted(written.flags.columns)
    assert list(off[written.flags.rows, written.flags.columns]) == list(written.flags.off)
    assert list(written.per_sample) == list(np.count_nonzero(off, axis=0))
    assert sparse.load_npz(tmp_path / "S.npz").nnz == np.count_nonzero(off)
    assert "S.npz has all" in tables_entry([OUTLIERS, "outliers.parquet"], 500_001)["note"]
