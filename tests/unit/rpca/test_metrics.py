from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from dcfpca.rpca import metrics


def test_the_truth_has_no_error_and_zero_has_error_one() -> None:
    L0, S0 = np.ones((3, 2)), np.eye(3, 2)
    assert metrics.paper_error(L0, S0, L0, S0) == 0
    assert metrics.paper_error(0 * L0, 0 * S0, L0, S0) == 1
    assert metrics.relative_error(1.1 * L0, L0) == pytest.approx(0.1)
    assert metrics.relative_squared_error(1.1 * L0, L0) == pytest.approx(0.01)


def test_a_sparse_matrix_counts_as_the_dense_one() -> None:
    rng = np.random.default_rng(0)
    L, S, L0, S0 = rng.standard_normal((4, 5, 6))
    assert metrics.paper_error(L, sparse.csc_array(S), L0, S0) == metrics.paper_error(L, S, L0, S0)


def test_superfluous_singular_values_count_as_error() -> None:
    truth = np.array([3.0, 2.0, 0.0])
    assert metrics.singular_value_error(np.array([3.0, 2.0]), truth, 2) == 0
    assert metrics.singular_value_error(np.array([3.0, 2.0, 0.0, 1.0]), truth, 2) == 0.5


def test_best_f1_is_the_best_over_every_threshold() -> None:
    rng = np.random.default_rng(1)
    labels = rng.random(80) < 0.3
    scores = np.round(labels + rng.standard_normal(80), 1)
    best = max(f1_score(labels, scores >= cut) for cut in np.unique(scores))
    assert metrics.best_f1(scores, labels) == pytest.approx(best)


def test_area_under_curve_agrees_with_scikit_learn_and_counts_ties_half() -> None:
    rng = np.random.default_rng(2)
    labels = rng.random(80) < 0.3
    scores = np.round(labels + rng.standard_normal(80), 1)
    assert metrics.area_under_curve(scores, labels) == pytest.approx(roc_auc_score(labels, scores))
    assert metrics.area_under_curve(np.zeros(4), np.array([True, False, True, False])) == 0.5


def test_average_precision_agrees_with_scikit_learn_also_where_scores_tie() -> None:
    rng = np.random.default_rng(3)
    scores, labels = rng.integers(0, 9, 200).astype(float), rng.random(200) < 0.2
    assert metrics.average_precision(scores, labels) == pytest.approx(average_precision_score(labels, scores))


def test_area_under_curve_of_one_class_is_undefined() -> None:
    assert np.isnan(metrics.area_under_curve(np.zeros(3), np.ones(3, dtype=bool)))
