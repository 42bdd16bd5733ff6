"""Values that are rare, but no errors, are not flagged; and errors beside them are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.simulate import simulate
from dcfpca.spec import parse_spec

SITES, EACH, FEATURES = 4, 60, 8


def related(seed: int) -> NDArray[np.float64]:
    """Samples × features of one strong direction and noise, for four sites in turn."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(SITES * EACH, 1)) + 0.5 * rng.normal(size=(SITES * EACH, FEATURES))


def flagged(X: NDArray[np.float64]) -> NDArray[np.bool_]:
    method = method_of(parse_spec({"rows": X.shape[1], "scaling": "robust"}))
    sites = np.split(X, SITES)
    run = simulate(method, [ArrayColumns(site.T.copy()) for site in sites])
    return np.concatenate([(result.S.toarray() != 0.0).T for result in run.results])


def test_a_rare_diagnosis_is_no_error() -> None:
    X = related(1)
    X[:, 3] = np.arange(len(X)) % EACH < 2  # too few at a site for its counts to tell
    X[7, 5] += 30.0
    found = flagged(X)
    assert not found[:, 3].any()
    assert found[7, 5]


def test_far_values_are_no_errors_where_the_others_expect_a_tail_of_unknown_shape() -> None:
    X = related(2)
    X[:, :2] = np.exp(X[:, :2])
    order = np.argsort(X[:, 2:].mean(axis=1))
    low, high = order[:8], order[-8:]  # one in thirty samples each
    X[high, 0] = X[low, 1] = np.linspace(40.0, 400.0, 8)
    found = flagged(X)
    assert not found[high, 0].any()
    assert found[low, 1].all()


def test_two_features_of_few_values_that_follow_from_one_another_have_no_errors() -> None:
    rng = np.random.default_rng(4)
    X = related(4)
    X[:, 0] = rng.poisson(rng.gamma(1.0, 4.0, len(X)))
    X[:, 1] = 1.0 / (1.0 + X[:, 0])
    assert not flagged(X)[:, :2].any()
