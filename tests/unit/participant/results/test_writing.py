"""Results and transform: L = U Vᵀ exactly, M = L + S, a whole directory or none, and new columns cleaned as well."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from dcfpca.atomic_files import atomic_directory
from dcfpca.errors import BadInput, Refused
from dcfpca.methods import method_of
from dcfpca.python_api.result_files import read_result
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.robust_projection import project
from dcfpca.rpca.simulate import exchange
from dcfpca.rpca.synthetic import Recipe, generate, relative_error
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms
from participant.commands.transform import transform
from participant.config import Config
from participant.results.manifest import ResultFacts
from participant.results.reading import read_manifests
from participant.results.writing import write_results

ROWS, RANK = 60, 3
FACTS = ResultFacts("run-1", "a", b"d" * 32, 9, "converged", "2026-01-01T00:00:00+00:00")


@pytest.fixture(params=["exact", "bound", "gradient"])
def finished(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, RunSpec, np.ndarray]:
    """A run of one site by each kind of model, and its data."""
    kind: dict[str, dict[str, object]] = {
        "exact": {"rank": RANK},
        "bound": {"max_rank": 2 * RANK},
        "gradient": {"rank": RANK, "method": "gradient"},
    }
    spec = RunSpec.model_validate({"rows": ROWS, "rounds": 40} | kind[request.param])
    problem = generate(Recipe(ROWS, 80, RANK), 0)
    M = problem.L + problem.S
    method = method_of(spec)
    site, consensus = method.site(ArrayColumns(M)), method.begin()
    while consensus.outcome is None:
        consensus = method.advance(consensus, exchange(method, consensus, [site]))
    write_results(tmp_path / "results", FACTS, Terms.of(spec), site, consensus, ArrayColumns(M))
    return tmp_path / "results", spec, M


def test_the_files_fit_together(finished: tuple[Path, RunSpec, np.ndarray]) -> None:
    directory, spec, M = finished
    target = directory / "run-1"
    U, V, L = (np.load(target / f"{name}.npy") for name in "UVL")
    S = sparse.load_npz(target / "S.npz")
    np.testing.assert_allclose(U @ V.T, L, rtol=0, atol=1e-12 * np.abs(L).max())
    assert L.shape == S.shape == M.shape
    assert U.shape[1] == V.shape[1]
    if spec.max_rank:
        assert U.shape[1] == RANK


def test_the_manifest_names_every_file_with_its_digest(finished: tuple[Path, RunSpec, np.ndarray]) -> None:
    directory, spec, _ = finished
    (manifest,) = read_manifests(directory)
    assert manifest["spec"] == json.loads(spec.canonical())
    tables = {f"{name}.{kind}" for name in ("outliers", "samples") for kind in ("csv", "parquet")}
    tables |= {"scores.npz", "ids.txt"}
    assert set(manifest["files"]) == {"L.npy", "S.npz", "V.npy", "U.npy", "consensus.npz"} | tables
    for name, facts in manifest["files"].items():
        content = (directory / "run-1" / name).read_bytes()
        assert facts == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert manifest["certificate"]


def test_the_tables_of_flags_are_made_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = generate(Recipe(ROWS, 80, RANK), 0)
    M = problem.L + problem.S
    spec = RunSpec.model_validate({"rows": ROWS, "rounds": 40, "rank": RANK})
    method = method_of(spec)
    site, consensus = method.site(ArrayColumns(M)), method.begin()
    while consensus.outcome is None:
        consensus = method.advance(consensus, exchange(method, consensus, [site]))

    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("a file was read back")

    for library, name in ((np, "load"), (sparse, "load_npz"), (Path, "read_text")):
        monkeypatch.setattr(library, name, refuse)
    write_results(tmp_path, FACTS, Terms.of(spec), site, consensus, ArrayColumns(M))
    monkeypatch.undo()
    result = read_result(tmp_path / "run-1")
    lines = list(result.outlier_table().rows())
    assert len(lines) == result.S.nnz > 0
    for line in lines:
        place = int(line["feature"]), int(line["id"])
        assert (line["expected"], line["deviation"]) == (result.L[place], result.S[place])


def test_a_directory_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "run-1"
    with atomic_directory(target) as made:
        (made / "a").write_text("old")
    with pytest.raises(FileNotFoundError), atomic_directory(target) as made:
        (made / "not there" / "a").write_text("new")
    assert (target / "a").read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_new_columns_are_split_exactly_by_a_known_subspace(share: float, missing: float) -> None:
    rng = np.random.default_rng(1)
    Q = np.linalg.qr(rng.standard_normal((100, 4)))[0]
    L = Q @ rng.standard_normal((4, 30)) * 10
    S = np.where(rng.random(L.shape) < share, rng.choice([-1.0, 1.0], L.shape) * 20, 0.0)
    M = np.where(rng.random(L.shape) < missing, np.nan, L + S)
    found = project(Q, M)
    assert relative_error(Q @ found.coefficients.T, L) < 1e-10
    seen = ~np.isnan(M)
    np.testing.assert_array_equal((found.outliers != 0) & seen, (S != 0) & seen)


def config_of(tmp_path: Path, results: Path) -> Config:
    tables = {
        "aggregator": {"address": "localhost:1"},
        "identity": {"ca": tmp_path, "cert": tmp_path, "key": tmp_path},
        "data": {"path": tmp_path},
        "state": {"dir": tmp_path},
        "results": {"dir": results},
    }
    return Config.model_validate(tables)


def test_transform_cleans_columns_that_were_not_in_the_run(tmp_path: Path) -> None:
    problem = generate(Recipe(ROWS, 120, RANK), 3)
    spec = RunSpec(rows=ROWS, rank=RANK, rounds=40)
    M = problem.L + problem.S
    method = method_of(spec)
    site, consensus = method.site(ArrayColumns(M[:, :90])), method.begin()
    while consensus.outcome is None:
        consensus = method.advance(consensus, exchange(method, consensus, [site]))
    write_results(tmp_path / "results", FACTS, Terms.of(spec), site, consensus, ArrayColumns(M[:, :90]))
    np.save(tmp_path / "new.npy", M[:, 90:])
    config = config_of(tmp_path, tmp_path / "results")
    report = transform(config, "run-1", tmp_path / "new.npy", tmp_path / "out")
    L, V = np.load(tmp_path / "out" / "L.npy"), np.load(tmp_path / "out" / "V.npy")
    assert relative_error(L, problem.L[:, 90:]) < 1e-6
    U = np.load(tmp_path / "results" / "run-1" / "U.npy")
    np.testing.assert_allclose(U @ V.T, L, atol=1e-9 * np.abs(L).max())
    assert report["columns"] == 30
    again = read_result(tmp_path / "out")
    np.testing.assert_array_equal(again.L, L)
    assert (again.manifest["columns"], again.manifest["transformed"]) == (30, True)
    tables = {"outliers.csv", "outliers.parquet", "samples.csv", "samples.parquet"}
    assert tables == set(again.manifest["tables"]["files"]) <= set(again.manifest["files"])
    np.save(tmp_path / "short.npy", M[:-1, 90:])
    with pytest.raises(BadInput, match="59 features"):
        transform(config, "run-1", tmp_path / "short.npy", tmp_path / "out2")
    with pytest.raises(Refused, match="no result"):
        transform(config, "run-2", tmp_path / "new.npy", tmp_path / "out2")
    with pytest.raises(BadInput, match="exists already"):
        transform(config, "run-1", tmp_path / "new.npy", tmp_path / "out")
