from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from dcfpca import RobustPCA
from dcfpca.errors import BadInput
from dcfpca.rpca.gradient.settings import GradientSettings
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.subspace.settings import SubspaceSettings
from dcfpca.rpca.synthetic import Outliers, Problem, Recipe, generate, relative_error


def _problem(**changes: object) -> Problem:
    recipe = {"rows": 60, "columns": 240, "rank": 4, "sparsity": 0.05, "outliers": Outliers.UNIFORM}
    return generate(Recipe(**(recipe | changes)), seed=2)  # type: ignore[arg-type]


def _angle(components: FloatArray, samples: FloatArray) -> float:
    """How much of the samples lies outside the components, relatively."""
    outside = samples - samples @ components.T @ components
    return float(np.linalg.norm(outside) / np.linalg.norm(samples))


@pytest.mark.slow
@parametrize_with_checks([RobustPCA(), RobustPCA(method="gradient", max_iter=30), RobustPCA(scaling="robust")])
def test_scikit_learn_accepts_the_estimator(estimator, check) -> None:  # type: ignore[no-untyped-def]
    check(estimator)


@pytest.mark.parametrize("bound", [{"rank": 4}, {"max_rank": 8}, {}])
def test_the_truth_is_found_with_rows_as_samples(bound: dict[str, Any]) -> None:
    problem = _problem()
    model = RobustPCA(**bound).fit(problem.M.T)
    assert model.rank_ == 4
    assert model.components_.shape == (4, 60)
    assert relative_error(model.low_rank_, problem.L.T) < 1e-6
    truth = np.linalg.svd(problem.L, compute_uv=False)[:4]
    np.testing.assert_allclose(model.singular_values_, truth, rtol=1e-6)
    assert model.n_iter_ <= 100
    assert "converged" in model.outcome_


def test_components_are_orthonormal_and_signed() -> None:
    model = RobustPCA(rank=4).fit(_problem().M.T)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(4), atol=1e-10)
    assert (model.components_[np.arange(4), np.abs(model.components_).argmax(axis=1)] > 0).all()


def test_the_parts_add_up_where_there_is_no_noise() -> None:
    problem = _problem()
    model = RobustPCA(rank=4).fit(problem.M.T)
    assert isinstance(model.sparse_, sparse.csr_array)
    np.testing.assert_allclose(model.low_rank_ + model.sparse_.toarray(), problem.M.T, atol=1e-6)
    np.testing.assert_array_equal(model.outliers_, model.sparse_.toarray() != 0)
    large = np.abs(problem.S.T) > 1e-3
    assert model.outliers_[large].all()


def test_transform_of_new_data_removes_its_outliers() -> None:
    problem = _problem()
    old, new = problem.M[:, :200].T, problem.M[:, 200:].T
    model = RobustPCA(rank=4).fit(old)
    cleaned = model.inverse_transform(model.transform(new))
    assert relative_error(cleaned, problem.L[:, 200:].T) < 1e-6
    assert relative_error(PCA(4).fit(old).inverse_transform(PCA(4).fit(old).transform(new)), problem.L[:, 200:].T) > 0.1


def test_missing_entries_are_filled_in_both_when_fitting_and_in_new_data() -> None:
    problem = _problem(missing=0.2)
    model = RobustPCA(rank=4).fit(problem.M[:, :200].T)
    assert relative_error(model.low_rank_, problem.L[:, :200].T) < 1e-6
    filled = model.inverse_transform(model.transform(problem.M[:, 200:].T))
    assert relative_error(filled, problem.L[:, 200:].T) < 1e-6
    assert np.isfinite(model.score_samples(problem.M.T)).all()


def test_a_spoiled_sample_scores_below_every_clean_one() -> None:
    problem = _problem(sparsity=0.0, noise=0.01)
    model = RobustPCA(rank=4).fit(problem.M.T)
    spoiled = problem.M[:, :3].T.copy()
    spoiled[:, 7] += 50.0
    assert model.score_samples(spoiled).max() < model.score_samples(problem.M.T).min()
    assert model.score(spoiled) < model.score(problem.M.T) < 0


def test_scaling_takes_an_offset_out_and_gives_it_back() -> None:
    rng = np.random.default_rng(5)
    offset = 100.0 * rng.standard_normal(30)
    X = np.outer(rng.choice([-1.0, 1.0], 400), rng.standard_normal(30)) + offset
    X[0, 0] += 1e4
    model = RobustPCA(max_rank=5, scaling="robust").fit(X)
    clean = X.copy()
    clean[0, 0] -= 1e4
    assert model.rank_ <= 2
    assert relative_error(model.low_rank_, clean) < 1e-6
    assert relative_error(model.inverse_transform(model.transform(X)), clean) < 1e-6
    assert relative_error((model.low_rank_ + model.sparse_)[0, 0], X[0, 0]) < 1e-6
    np.testing.assert_allclose(model.location_, np.median(X, axis=0))


def test_units_and_offsets_change_nothing_that_is_found() -> None:
    rng = np.random.default_rng(6)
    X = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 8)) + 0.3 * rng.standard_normal((200, 8))
    X[7, 2] += 12.0
    units, offsets = 10.0 ** rng.uniform(-3, 3, 8), np.full(8, 1e6)
    plain, moved = RobustPCA(scaling="robust").fit(X), RobustPCA().fit(X * units + offsets)
    assert moved.rank_ == plain.rank_ > 0
    assert (moved.outliers_ == plain.outliers_).all()
    assert moved.outliers_[7, 2]
    # Which entries are hidden from the fit follows from their values, so that L is not the same to the last digit.
    assert relative_error((moved.low_rank_ - offsets) / units, plain.low_rank_) < 0.02


def test_features_that_share_unit_and_level_are_left_as_they_are() -> None:
    model = RobustPCA(max_rank=8).fit(_problem().M.T)
    assert (model.scale_ == 1.0).all()
    assert (model.location_ == 0.0).all()


def test_a_feature_that_nobody_observed_does_not_spoil_the_rest() -> None:
    X = _problem().M.T.copy()
    X[:, 3] = np.nan
    model = RobustPCA(rank=4, scaling="robust").fit(X)
    assert np.isfinite(model.low_rank_).all()
    assert model.location_[3] == 0.0


def test_the_gradient_method_comes_close() -> None:
    problem = _problem()
    model = RobustPCA(rank=4, method="gradient", max_iter=150, tol=0.0).fit(problem.M.T)
    assert model.n_iter_ == 150
    assert relative_error(model.low_rank_, problem.L.T) < 3e-2
    assert _angle(model.components_, problem.L.T) < 3e-2


def test_it_works_in_a_pipeline_and_can_be_cloned() -> None:
    X = _problem(sparsity=0.0).M.T
    pipeline = make_pipeline(StandardScaler(), RobustPCA(rank=4))
    assert pipeline.fit_transform(X).shape == (240, 4)
    assert list(pipeline.get_feature_names_out()) == [f"robustpca{j}" for j in range(4)]
    assert clone(RobustPCA(max_rank=7)).max_rank == 7


def test_all_zero_data_has_rank_zero() -> None:
    model = RobustPCA(max_rank=2).fit(np.zeros((10, 6)))
    assert model.rank_ == 0
    assert not model.low_rank_.any()
    assert model.transform(np.ones((3, 6))).shape == (3, 0)
    np.testing.assert_array_equal(model.inverse_transform(np.zeros((3, 0))), np.zeros((3, 6)))


@pytest.mark.parametrize(
    "options",
    [
        {"rank": 2, "max_rank": 3},
        {"rank": 61},
        {"max_rank": 0},
        {"rank": 2.5},
        {"method": "magic"},
        {"method": "gradient", "settings": SubspaceSettings()},
        {"settings": GradientSettings()},
    ],
)
def test_impossible_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        RobustPCA(**options).fit(_problem().M.T)  # type: ignore[arg-type]


def test_a_feature_that_follows_nothing_is_told_in_the_outcome() -> None:
    X = _problem().M.T.copy()
    X[:, 7] = 500.0
    model = RobustPCA(max_rank=8).fit(X)
    assert "most entries of 1 feature are outliers" in model.outcome_
    assert model.certificate_["rows_apart"] == 1.0
    assert model.outliers_[:, 7].all()
    plain = RobustPCA(max_rank=8).fit(_problem().M.T)
    assert "outliers" not in plain.outcome_
    assert plain.certificate_["stationarity"] < 1e-8


def test_a_bound_that_was_reached_is_told_in_the_outcome() -> None:
    problem = _problem(sparsity=0.0, noise=0.01)
    assert "as large as its bound 3: try a larger max_rank" in RobustPCA(max_rank=3).fit(problem.M.T).outcome_
    assert "bound" not in RobustPCA(max_rank=6).fit(problem.M.T).outcome_
    assert "bound" not in RobustPCA(rank=4).fit(problem.M.T).outcome_


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_a_table_of_200_samples_needs_no_settings_at_any_scale(scale: float) -> None:
    problem = _problem(rows=50, columns=200, rank=3, noise=0.05)
    model = RobustPCA().fit(scale * problem.M.T)
    assert model.rank_ == 3
    assert relative_error(model.low_rank_ / scale, problem.L.T) < 0.05


def test_infinity_is_refused_in_plain_words() -> None:
    X = _problem().M.T.copy()
    X[0, 0] = np.inf
    with pytest.raises(ValueError, match="contains infinity"):
        RobustPCA().fit(X)


def test_an_unfitted_model_says_so() -> None:
    with pytest.raises(NotFittedError):
        RobustPCA().transform(np.ones((3, 3)))


def test_without_scikit_learn_the_package_works_and_the_estimator_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['sklearn'] = None; sys.modules['sklearn.base'] = None\n"
        "import dcfpca; print(dcfpca.__version__)\n"
        "try: dcfpca.RobustPCA\n"
        "except ImportError as error: print(error)\n"
    )
    spoken = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "pip install 'dcfpca[sklearn]'" in spoken


def test_the_package_has_no_other_surprises() -> None:
    import dcfpca  # noqa: PLC0415

    with pytest.raises(AttributeError, match="no attribute 'Robust'"):
        _ = dcfpca.Robust
