"""Result files written block by block are what NumPy and SciPy read, and scaled results say how to read them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.simulate import collect, exchange
from dcfpca.spec import parse_spec
from dcfpca.terms import Terms
from participant.results.block_files import columns_file, outliers_file
from participant.results.manifest import ResultFacts
from participant.results.reading import load_features, load_scaling
from participant.results.writing import write_results

FACTS = ResultFacts("20260101-abcd", "a", bytes(32), 3, "converged", "2026-01-01T00:00:00+00:00")


@pytest.mark.parametrize("cuts", [(0, 9), (0, 1, 4, 9), (0, 0, 9)])
def test_blocks_of_columns_add_up_to_the_matrix(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((5, 9))
    S = sparse.csc_array(np.where(rng.random((5, 9)) < 0.3, matrix, 0.0))
    with (
        columns_file(tmp_path / "L.npy", 5, 9) as L,
        columns_file(tmp_path / "V.npy", 5, 9, turned=True) as V,
        outliers_file(tmp_path / "S.npz", 5, 9) as outliers,
    ):
        for start, stop in itertools.pairwise(cuts):
            L(matrix[:, start:stop])
            V(matrix[:, start:stop])
            outliers(sparse.csc_array(S[:, start:stop]))
    np.testing.assert_array_equal(np.load(tmp_path / "L.npy"), matrix)
    np.testing.assert_array_equal(np.load(tmp_path / "V.npy"), matrix.T)
    loaded = sparse.load_npz(tmp_path / "S.npz")
    assert isinstance(loaded, sparse.csc_array)
    np.testing.assert_array_equal(loaded.toarray(), S.toarray())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["L.npy", "S.npz", "V.npy"]


def test_a_matrix_without_outliers_is_an_empty_sparse_one(tmp_path: Path) -> None:
    with outliers_file(tmp_path / "S.npz", 4, 2) as outliers:
        outliers(sparse.csc_array((4, 2)))
    assert sparse.load_npz(tmp_path / "S.npz").shape == (4, 2)


def test_the_manifest_of_a_scaled_run_says_how_to_read_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 30)) * 100.0 + 5.0
    names = tuple(f"f{k}" for k in range(12))
    spec = parse_spec({"features": names, "rank": 3, "rounds": 5, "scaling": "robust"})
    method = method_of(spec)
    site, consensus = method.site(ArrayColumns(matrix)), method.begin()
    while consensus.outcome is None:
        consensus = method.advance(consensus, exchange(method, consensus, [site]))
    write_results(tmp_path, FACTS, Terms.of(spec), site, consensus, ArrayColumns(matrix))
    folder = tmp_path / FACTS.run_id
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {"centre.npy", "scale.npy"} < set(manifest["files"])
    assert "L = centre + scale" in manifest["scaling"]["meaning"]
    U, V = np.load(folder / "U.npy"), np.load(folder / "V.npy")
    centre, scale = load_scaling(tmp_path, FACTS.run_id, 12)
    np.testing.assert_allclose(np.load(folder / "L.npy"), centre[:, None] + scale[:, None] * (U @ V.T))
    np.testing.assert_allclose(np.load(folder / "L.npy"), collect(site, consensus).L)
    assert load_features(tmp_path, FACTS.run_id) == names
