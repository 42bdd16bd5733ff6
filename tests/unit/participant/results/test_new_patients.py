"""New patients held against the null of a run: impossible values are found, a clean patient is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dcfpca import RobustPCA
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.simulate import exchange
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms
from participant.commands.transform import transform
from participant.config import Config
from participant.results.manifest import ResultFacts
from participant.results.writing import write_results

FACTS = ResultFacts("run-1", "a", b"d" * 32, 9, "converged", "2026-01-01T00:00:00+00:00")
AGE, CHOLESTEROL = 0, 4
MEANS = np.array([54.0, 0.7, 2.0, 131.0, 246.0, 0.15, 0.5, 149.0, 0.3, 1.0, 1.4, 0.7, 2.3])
DEVIATIONS = np.array([9.0, 0.0, 1.0, 17.0, 50.0, 0.0, 0.5, 23.0, 0.0, 1.1, 0.6, 1.0, 0.6])


def _patients(count: int, seed: int) -> FloatArray:
    """Thirteen clinical features with two common factors, three of them of two values."""
    rng = np.random.default_rng(seed)
    loadings = np.random.default_rng(7).standard_normal((13, 2))
    z = loadings @ rng.standard_normal((2, count)) + rng.standard_normal((13, count))
    M = MEANS[:, None] + DEVIATIONS[:, None] * z / np.sqrt(1.0 + np.sum(loadings**2, axis=1))[:, None]
    for row in (1, 5, 8):
        M[row] = rng.random(count) < MEANS[row]
    return M


def _finished(directory: Path, spec: RunSpec, M: FloatArray) -> Config:
    method = method_of(spec)
    sites, consensus = [method.site(ArrayColumns(own)) for own in (M[:, :400], M[:, 400:])], method.begin()
    while consensus.outcome is None:
        consensus = method.advance(consensus, exchange(method, consensus, sites))
    write_results(directory / "results", FACTS, Terms.of(spec), sites[0], consensus, ArrayColumns(M[:, :400]))
    tables = {
        "identity": {"ca": directory, "cert": directory, "key": directory},
        "data": {"path": directory},
        "state": {"dir": directory},
        "results": {"dir": directory / "results"},
    }
    return Config.model_validate({"aggregator": {"address": "localhost:1"}} | tables)


@pytest.mark.parametrize(
    "options", [{}, {"scaling": "robust"}, {"rank": 2, "scaling": "robust"}, {"max_rank": 10, "scaling": "robust"}]
)
def test_an_impossible_cholesterol_and_age_are_found_and_a_clean_patient_is_not(
    tmp_path: Path, options: dict[str, object]
) -> None:
    config = _finished(tmp_path, RunSpec.model_validate({"rows": 13} | options), _patients(900, 0))
    new = _patients(3, 1)
    new[CHOLESTEROL, 0], new[AGE, 1] = 5000.0, -40.0
    np.save(tmp_path / "new.npy", new)
    transform(config, "run-1", tmp_path / "new.npy", tmp_path / "out")
    lines = (tmp_path / "out" / "outliers.csv").read_text().splitlines()[1:]
    with np.load(tmp_path / "out" / "scores.npz") as scores:
        p = scores["p_value"]
    assert len(lines) == 2
    # A single entry is judged by itself; it makes its sample odder, but does not condemn it.
    assert all(abs(float(line.split(",")[5])) > 8.0 for line in lines), "z"
    assert p[0] < p[2]
    assert p[1] < p[2]
    assert p[2] > 0.01


def test_the_estimator_and_the_command_give_the_same_numbers(tmp_path: Path) -> None:
    M = _patients(900, 0)
    # Of the two sites one has more than half of the columns: in the estimator, which pools, each column counts alike.
    config = _finished(tmp_path, RunSpec(rows=13, rank=2, min_cell=1, max_share=1.0), M)
    new = _patients(30, 1)
    new[CHOLESTEROL, 0] = 1000.0
    np.save(tmp_path / "new.npy", new)
    transform(config, "run-1", tmp_path / "new.npy", tmp_path / "out")
    model = RobustPCA(rank=2, max_iter=100, scaling="none").fit(M.T)
    with np.load(tmp_path / "out" / "scores.npz") as scores:
        whole, worse = scores["p_value"], np.exp(model.score_samples(new.T))
    # The estimator orders by the worse of the sample as a whole, which the command states, and of its entries.
    assert (worse <= whole * (1.0 + 1e-5)).all()
    assert np.isclose(worse, whole, rtol=1e-5, atol=0.0).any()
    L = np.load(tmp_path / "out" / "L.npy")
    np.testing.assert_allclose(model.inverse_transform(model.transform(new.T)).T, L, rtol=1e-6, atol=1e-6)


def test_a_sample_far_out_within_the_subspace_is_found_by_distance_alone() -> None:
    rng = np.random.default_rng(3)
    M = rng.standard_normal((600, 2)) @ rng.standard_normal((2, 30)) + 0.3 * rng.standard_normal((600, 30))
    model = RobustPCA(rank=2).fit(M)
    along = model.singular_values_[0] / np.sqrt(600.0) * model.components_[0]
    near, far = model.location_ + along, model.location_ + 8.0 * along
    assert not model.flag(np.stack([near, far])).any()
    scores = model.score_samples(np.stack([near, far]))
    assert scores[0] > np.log(0.05)
    assert scores[1] < np.log(1e-4)
