"""The report at a site: its figures against a known construction, and what it says of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from dcfpca.errors import BadInput
from participant.commands.report import LARGEST_PICTURE, build_report, measure_result
from participant.config import Config, load_config


def _site(tmp_path: Path, M: np.ndarray, L: np.ndarray, S: np.ndarray) -> Config:
    np.save(tmp_path / "data.npy", M)
    result = tmp_path / "results" / "r1"
    result.mkdir(parents=True)
    np.save(result / "L.npy", L)
    sparse.save_npz(result / "S.npz", sparse.csc_array(S))
    (tmp_path / "participant.toml").write_text(
        '[aggregator]\naddress = "a:1"\n[identity]\nca = "x"\ncert = "x"\nkey = "x"\n[data]\npath = "data.npy"\n'
        'missing = "allow"\n[state]\ndir = "state"\n[results]\ndir = "results"\n'
    )
    return load_config(tmp_path / "participant.toml")


@pytest.fixture
def known(tmp_path: Path) -> tuple[Config, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    L = np.outer(random.normal(size=20), random.normal(size=30))
    S = np.zeros((20, 30))
    S[4, :15] = 5.0
    S[:10, 7] = -9.0
    S[2, 29] = 100.0
    M = L + S
    M[0, 0] = np.nan
    return _site(tmp_path, M, L, S), M, L, S


def test_shares_count_outliers_among_observed_entries(known: tuple[Config, np.ndarray, np.ndarray, np.ndarray]) -> None:
    config, M, _, S = known
    got = measure_result(config, config.results.dir / "r1")
    observed = ~np.isnan(M)
    assert np.allclose(got.row_shares, (S != 0).sum(axis=1) / observed.sum(axis=1))
    assert np.allclose(got.column_shares, (S != 0).sum(axis=0) / observed.sum(axis=0))
    assert (got.outliers, got.missing) == (int(np.count_nonzero(S)), 1)


def test_the_most_anomalous_columns_come_first_with_their_largest_entry(
    known: tuple[Config, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    config, *_ = known
    first, second, *rest = measure_result(config, config.results.dir / "r1").anomalies
    assert (first.column, first.row, first.largest, first.outliers) == (29, 2, 100.0, 1)
    assert (second.column, second.outliers) == (7, 10)
    assert all(one.column < 15 for one in rest)


def test_small_matrices_are_shown_entry_by_entry(known: tuple[Config, np.ndarray, np.ndarray, np.ndarray]) -> None:
    config, M, L, S = known
    got = measure_result(config, config.results.dir / "r1")
    assert np.allclose(got.M, M, equal_nan=True)
    assert np.allclose(got.L, L)
    assert np.array_equal(got.S, S)


def test_large_matrices_are_shown_by_the_mean_of_their_tiles_and_the_largest_outlier(tmp_path: Path) -> None:
    rows, columns = 2 * LARGEST_PICTURE, 3 * LARGEST_PICTURE
    L = np.random.default_rng(5).normal(size=(rows, columns))
    S = np.zeros_like(L)
    S[1, 4], S[0, 3] = -7.0, 2.0
    config = _site(tmp_path, L + S, L, S)
    got = measure_result(config, config.results.dir / "r1")
    tiles = L.reshape(LARGEST_PICTURE, 2, LARGEST_PICTURE, 3)
    assert np.allclose(got.L, tiles.mean(axis=(1, 3)))
    assert got.S[0, 1] == -7.0
    assert np.count_nonzero(got.S) == 1


def test_the_report_holds_three_pictures_and_what_is_in_them_in_words(
    known: tuple[Config, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    config, *_ = known
    manifest = {
        "spec": {},
        "run": "r1",
        "label": "<b>spring</b>",
        "participant": "a",
        "outcome": "converged",
        "method": "subspace",
        "rank": 1,
        "rounds": 5,
        "spec_sha256": "00",
        "certificate": {"stationarity": 1e-9},
        "files": {"L.npy": {"bytes": 1, "sha256": "ff"}},
    }
    html = build_report(config, json.loads(json.dumps(manifest)))
    assert html.count("data:image/png;base64,") == 3
    assert "nothing in this file has left it" in html
    assert "<b>" not in html
    assert "<td>29</td>" in html


def test_data_that_is_not_the_runs_own_is_told(tmp_path: Path) -> None:
    L = np.ones((4, 5))
    config = _site(tmp_path, np.ones((4, 6)), L, np.zeros((4, 5)))
    with pytest.raises(BadInput, match="the data is 4 × 6 and the result 4 × 5"):
        measure_result(config, config.results.dir / "r1")
