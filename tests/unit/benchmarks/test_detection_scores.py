from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from benchmarks.real_data import detection_scores


def test_best_f1_is_the_best_over_every_threshold() -> None:
    rng = np.random.default_rng(1)
    labels = rng.random(80) < 0.3
    scores = np.round(labels + rng.standard_normal(80), 1)
    best = max(f1_score(labels, scores >= cut) for cut in np.unique(scores))
    assert detection_scores.best_f1(scores, labels) == pytest.approx(best)


def test_area_under_curve_agrees_with_scikit_learn_and_counts_ties_half() -> None:
    rng = np.random.default_rng(2)
    labels = rng.random(80) < 0.3
    scores = np.round(labels + rng.standard_normal(80), 1)
    assert detection_scores.area_under_curve(scores, labels) == pytest.approx(roc_auc_score(labels, scores))
    assert detection_scores.area_under_curve(np.zeros(4), np.array([True, False, True, False])) == 0.5


def test_average_precision_agrees_with_scikit_learn_also_where_scores_tie() -> None:
    rng = np.random.default_rng(3)
    scores, labels = rng.integers(0, 9, 200).astype(float), rng.random(200) < 0.2
    assert detection_scores.average_precision(scores, labels) == pytest.approx(average_precision_score(labels, scores))


def test_area_under_curve_of_one_class_is_undefined() -> None:
    assert np.isnan(detection_scores.area_under_curve(np.zeros(3), np.ones(3, dtype=bool)))
