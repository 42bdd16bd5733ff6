"""Flags as tables: ids and feature names, the most significant first, and a stated false discovery rate."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from scipy import sparse

from dcfpca.rpca.method import ColumnScores
from participant.results.flag_tables import (
    OUTLIERS,
    SAMPLES,
    FlaggedResult,
    significant,
    write_flag_tables,
)


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_each_flagged_entry_is_named_with_what_was_observed_and_expected(tmp_path: Path) -> None:
    L = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
    S = np.zeros((2, 3))
    S[1, 2], S[0, 0] = 500.0, -4.0
    scores = ColumnScores(np.array([0.01, 0.9, 1e-12]), np.array([4.0, 0.5, 50.0]), np.zeros(3))
    result = FlaggedResult(
        L, sparse.csc_array(S), np.array([1.0, 10.0]), scores, ("ann", "bob", "cem"), ("age", "chol"), 0.01
    )
    write_flag_tables(tmp_path, result)
    first, second = lines_of(tmp_path / OUTLIERS)
    assert (first["id"], first["feature"], first["observed"], first["expected"]) == ("cem", "chol", "530", "30")
    assert (second["id"], second["feature"], float(second["z"])) == ("ann", "age", -4.0)
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
