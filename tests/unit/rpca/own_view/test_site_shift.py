"""Features that differ from those of all sites are named, with the likely reason; ordinary ones are not."""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.own_view.site_shift import Profile, shift_notes

NAMES = ("age", "glucose", "weight", "height", "pressure", "pulse")
CENTRE, SPREAD = np.array([50.0, 5.5, 75.0, 170.0, 120.0, 70.0]), np.array([15.0, 1.2, 14.0, 9.0, 16.0, 10.0])
SHARED = Profile(CENTRE, SPREAD, np.zeros(6), np.zeros(6))


def _site(seed: int, columns: int = 100) -> FloatArray:
    return np.asarray(CENTRE[:, None] + SPREAD[:, None] * np.random.default_rng(seed).normal(size=(6, columns)))


def test_sites_like_the_others_are_told_nothing() -> None:
    assert [shift_notes(SHARED, _site(seed), NAMES) for seed in range(40)] == [()] * 40


def test_another_unit_is_named_with_its_factor() -> None:
    M = _site(1)
    M[1] *= 18.02
    (note,) = shift_notes(SHARED, M, NAMES)
    assert note.startswith("glucose: ")
    assert "mg/dL" in note


def test_a_spread_outside_half_and_twice_is_named() -> None:
    M = _site(2)
    M[4] = CENTRE[4] + 5.0 * (M[4] - CENTRE[4])
    (note,) = shift_notes(SHARED, M, NAMES)
    assert note.startswith("pressure: the spread is")


def test_a_code_in_place_of_values_is_named() -> None:
    M = _site(3)
    M[5, :80] = -9.0
    (note,) = shift_notes(SHARED, M, NAMES)
    assert note == "pulse: 80% of the values here are -9, at most 0% are one value over all sites: a code?"


def test_features_in_another_order_are_recognised() -> None:
    (note,) = shift_notes(SHARED, _site(4)[[3, 0, 4, 1, 5, 2]], NAMES)
    assert "in another order: age looks like height" in note


def test_a_feature_with_hardly_an_entry_is_not_judged() -> None:
    M = _site(5)
    M[0, 5:] = np.nan
    M[0, :5] = 1e6
    assert shift_notes(SHARED, M, NAMES) == ()


def test_gaps_that_other_sites_do_not_have_are_named() -> None:
    M = _site(6)
    M[2, :60] = np.nan
    assert shift_notes(SHARED, M, NAMES) == ("weight: 60% of the values here are missing, 0% over all sites.",)


def test_before_a_fit_only_medians_and_spreads_are_compared_and_features_without_a_scale_are_not() -> None:
    known = Profile.of_units(CENTRE, np.where(np.arange(6) == 3, 1.0, SPREAD))
    M = _site(7)
    M[5, :80], M[3] = -9.0, 1.0 + M[3] / 100.0
    assert shift_notes(known, M, NAMES) == ()
    assert "in another order" in shift_notes(known, _site(4)[[5, 0, 4, 3, 1, 2]], NAMES)[0]
