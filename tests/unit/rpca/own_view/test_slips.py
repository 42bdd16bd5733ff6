"""Slips that a site often makes are flagged where they are far likelier than chance, and none is seen where none is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.calibration.calibration import Calibration
from dcfpca.rpca.calibration.expectation import Expected, expect, model_from_covariance
from dcfpca.rpca.calibration.normal_scores import straight_knots
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.own_view.slips import KINDS, SHIFTS, Slips, kept_slips, slip_shares, slipped

ROWS, SAMPLES, LOCAL, CUT = 8, 400, 0.15, 5.0
MEAN, SPREAD = np.linspace(20.0, 90.0, ROWS), np.linspace(6.0, 26.0, ROWS)
FEW = np.zeros(ROWS, dtype=bool)
TEN_TIMES_LESS, SIGN = list(SHIFTS).index(0.1), len(KINDS) - 1


def _calibration() -> Calibration:
    """Eight features of which any two have a correlation of one half, in units of their spread; 1 % is wrong."""
    model = model_from_covariance(np.zeros(ROWS), 0.5 * np.eye(ROWS) + 0.5, 1e6, FEW)
    one = np.ones(ROWS)
    return replace(
        Calibration.unknown(ROWS), knots=straight_knots(np.zeros(ROWS), one), reach=one, own=model.own,
        factor=model.factor, above=one, below=one, freedom=100.0, unit=1.0, wrong=1e-4, cut=CUT,
    )  # fmt: skip


KNOWN, UNITS = _calibration(), np.stack([MEAN, SPREAD])


def _samples(seed: int) -> FloatArray:
    """Of the model, in the data's own units."""
    draw = np.random.default_rng(seed)
    scores = np.sqrt(0.5) * (draw.normal(size=(1, SAMPLES)) + draw.normal(size=(ROWS, SAMPLES)))
    return np.asarray(MEAN[:, None] + SPREAD[:, None] * scores)


def _expected(M: FloatArray) -> Expected:
    found = expect(KNOWN.model, M)
    z = (M - found.score) / found.deviation
    return Expected(found.score, z, np.zeros(M.shape[1]), found.score, found.deviation, found.trusted)


def _judged(X: FloatArray) -> tuple[Slips, NDArray[np.bool_], NDArray[np.bool_]]:
    """The slips of a site with this data, what they flag, and what lies beyond the cut anyway."""
    M = (X - MEAN[:, None]) / SPREAD[:, None]
    found = _expected(M)
    slips = slip_shares(KNOWN, 1e6, M, found, UNITS, LOCAL)
    return slips, slipped(slips, KNOWN, 1e6, M, found), np.abs(found.z) > CUT


def _spoilt(seed: int) -> tuple[FloatArray, NDArray[np.bool_]]:
    return _samples(seed), np.random.default_rng(seed + 100).random((ROWS, SAMPLES)) < 0.03


def test_no_slip_is_seen_where_none_is_made() -> None:
    for seed in range(20):
        slips, flagged, _ = _judged(_samples(seed))
        assert not slips.shares.any()
        assert slips.exchanged == 0.0
        assert not flagged.any()


def test_decimal_points_that_a_site_often_misplaces_are_found_below_the_cut() -> None:
    X, wrong = _spoilt(1)
    slips, flagged, beyond = _judged(np.where(wrong, 0.1 * X, X))
    assert np.argmax(slips.shares) == TEN_TIMES_LESS
    assert abs(slips.shares[TEN_TIMES_LESS] - 0.03) < 0.01
    assert np.mean(beyond[wrong]) < 0.5 < np.mean(flagged[wrong])
    assert np.count_nonzero(flagged & ~wrong) <= 0.05 * np.count_nonzero(flagged)


def test_a_sign_that_a_site_often_loses_is_found_below_the_cut() -> None:
    X, wrong = _spoilt(2)
    X -= MEAN[:, None] - SPREAD[:, None]  # values of both signs: few slips of it are gross
    M = (np.where(wrong, -X, X) - SPREAD[:, None]) / SPREAD[:, None]
    found = _expected(M)
    slips = slip_shares(KNOWN, 1e6, M, found, np.stack([SPREAD, SPREAD]), LOCAL)
    flagged = slipped(slips, KNOWN, 1e6, M, found)
    assert np.argmax(slips.shares) == SIGN
    assert np.count_nonzero(flagged & wrong) > np.count_nonzero((np.abs(found.z) > CUT) & wrong) + 5
    assert np.count_nonzero(flagged & ~wrong) <= 0.15 * np.count_nonzero(flagged)


def test_one_misplaced_point_is_no_habit() -> None:
    X = _samples(3)
    X[4, 7] = 0.1 * X[4, 7]
    slips, flagged, _ = _judged(X)
    assert not slips.shares.any()
    assert not flagged.any()


def test_two_features_that_are_often_exchanged_are_found_both() -> None:
    X, draw = _samples(4), np.random.default_rng(5)
    wrong = np.zeros(X.shape, dtype=bool)
    for sample in draw.choice(SAMPLES, 24, replace=False):
        pair = draw.choice(ROWS, 2, replace=False)
        X[pair, sample], wrong[pair, sample] = X[pair[::-1], sample], True
    slips, flagged, beyond = _judged(X)
    assert 0.01 < slips.exchanged <= 0.06  # features that have much the same values show no exchange
    assert np.count_nonzero(flagged & wrong) > np.count_nonzero(beyond & wrong)
    assert np.count_nonzero(flagged & ~wrong) <= 1


def test_a_gross_entry_has_not_been_exchanged_with_an_ordinary_one() -> None:
    X, wrong = _spoilt(6)
    X = np.where(wrong, X + 15.0 * SPREAD[:, None], X)
    slips, flagged, _ = _judged(X)
    assert slips.exchanged == 0.0
    assert not (flagged & ~wrong).any()


def test_a_site_finds_its_slips_again_as_it_kept_them() -> None:
    X, wrong = _spoilt(1)
    slips, _, _ = _judged(np.where(wrong, 0.1 * X, X))
    again = kept_slips(slips.arrays())
    assert again is not None
    assert again.arrays().keys() == slips.arrays().keys()
    assert all(np.array_equal(again.arrays()[name], array) for name, array in slips.arrays().items())
    assert kept_slips({}) is None
