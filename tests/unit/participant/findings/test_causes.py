"""Stories of flagged entries: an error of each kind gets that kind and the value that was meant, or none."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from participant.findings.causes import (
    CODE,
    COPIED,
    DECIMAL,
    DIGITS,
    SIGN,
    SWAPPED,
    UNIT,
    Cause,
    Flagged,
    Judged,
    explain,
    kind_shares,
)

HEIGHT, WEIGHT, SUGAR, DRIFT = range(4)
NAMES = ("height", "weight", "sugar", "drift")
CENTRE, NOISE = np.array([172.0, 71.0, 5.4, 14.0]), np.array([3.0, 2.0, 0.2, 1.0])
PATIENT = 40


def patients() -> FloatArray:
    drawn = CENTRE[:, None] + NOISE[:, None] * np.random.default_rng(3).standard_normal((4, 200))
    return np.round(drawn, 1)


def judge(M: FloatArray) -> FloatArray:
    """A model in which every feature is independent and normal."""
    return np.asarray((M - CENTRE[:, None]) / NOISE[:, None])


def story(M: FloatArray, row: int, column: int = PATIENT) -> Cause | None:
    z = judge(M)
    flagged = [Flagged(int(k), int(n), float(CENTRE[k]), float(z[k, n])) for k, n in np.argwhere(np.abs(z) > 4.5)]
    found = explain(ArrayColumns(M), judge, NOISE, NAMES, flagged)
    told = {(one.row, one.column): cause for one, cause in zip(flagged, found, strict=True)}
    return told[row, column]


@pytest.mark.parametrize(
    ("row", "meant", "found", "kind"),
    [
        (HEIGHT, 171.3, 1713.0, DECIMAL),
        (HEIGHT, 171.3, 17.13, DECIMAL),
        (SUGAR, 5.4, 540.0, DECIMAL),
        (HEIGHT, 171.3, 67.44, UNIT),
        (SUGAR, 5.4, 97.29, UNIT),
        (WEIGHT, 70.4, -70.4, SIGN),
        (HEIGHT, 171.3, 117.3, DIGITS),
    ],
)
def test_the_kind_of_an_error_is_named_with_the_value_that_was_meant(
    row: int, meant: float, found: float, kind: str
) -> None:
    M = patients()
    M[row, PATIENT] = found
    cause = story(M, row)
    assert cause is not None
    assert cause.kind == kind
    assert cause.corrected == pytest.approx(meant, rel=2e-3)


def test_two_features_that_were_swapped_are_both_named_with_each_others_values() -> None:
    M = patients()
    M[[HEIGHT, WEIGHT], PATIENT] = M[[WEIGHT, HEIGHT], PATIENT]
    for row, other in ((HEIGHT, WEIGHT), (WEIGHT, HEIGHT)):
        cause = story(M, row)
        assert cause == Cause(SWAPPED, f"swapped with {NAMES[other]}", M[other, PATIENT])


def test_a_code_for_missing_is_named_and_has_no_other_value() -> None:
    for code in (9999.0, -1.0, 0.0, -99.0):
        M = patients()
        M[WEIGHT, PATIENT] = code
        cause = story(M, WEIGHT)
        assert cause is not None
        assert (cause.kind, math.isnan(cause.corrected)) == (CODE, True)


def test_a_value_of_the_sample_before_is_named_only_where_it_was_ordinary_there() -> None:
    M = patients()
    M[DRIFT, PATIENT - 1] = M[DRIFT, PATIENT] = 23.7  # of two in a row, neither is known to be the copy
    assert story(M, DRIFT) is None

    def shifted(some: FloatArray) -> FloatArray:
        """This patient is expected elsewhere than the one before."""
        return judge(some) - 9.0 * (some[HEIGHT] == 180.0) * (np.arange(4)[:, None] == DRIFT)

    M = patients()
    M[HEIGHT, PATIENT], M[DRIFT, PATIENT] = 180.0, M[DRIFT, PATIENT - 1]
    entry = Flagged(DRIFT, PATIENT, 23.0, -9.0)
    (cause,) = explain(ArrayColumns(M), shifted, NOISE, NAMES, [entry])
    assert cause is not None
    assert cause.kind == COPIED


def test_a_value_that_no_story_makes_ordinary_gets_none() -> None:
    M = patients()
    M[HEIGHT, PATIENT] = 131.9
    assert story(M, HEIGHT) is None


def test_features_of_any_number_are_explained_in_batches_in_the_order_of_the_flags() -> None:
    M = patients()
    places = [3, 190, 77, 12]
    for number, column in enumerate(places):
        M[WEIGHT, column] = -70.4 if number % 2 else 719.0
    entries = [Flagged(WEIGHT, column, 71.0, 99.0) for column in places]
    found = explain(ArrayColumns(M), judge, NOISE, NAMES, entries)
    assert [one.kind if one else "" for one in found] == [DECIMAL, SIGN, DECIMAL, SIGN]


def test_a_converted_value_is_told_by_digits_that_no_other_value_of_the_feature_has() -> None:
    named = ("a", "b", "c", "d")
    M = patients()
    M[WEIGHT, PATIENT] = 155.21  # 70.4 × 2.20462, where all others have one decimal
    entry = [Flagged(WEIGHT, PATIENT, 71.0, 42.0)]
    (told,) = explain(ArrayColumns(M), judge, NOISE, named, entry)
    assert told == Cause(UNIT, "in lb instead of kg", 70.4)
    M[WEIGHT, PATIENT] = 155.34  # no value with one decimal gives this
    (none,) = explain(ArrayColumns(M), judge, NOISE, named, [Flagged(WEIGHT, PATIENT, 71.0, 42.0)])
    assert none is None


def test_the_name_of_a_feature_decides_between_units_and_without_it_both_are_told() -> None:
    wide = NOISE * np.array([1.0, 6.0, 1.0, 1.0])

    def unsure(some: FloatArray) -> FloatArray:
        return np.asarray((some - CENTRE[:, None]) / wide[:, None])

    told = {}
    for name in ("weight", "waist", "albumin"):
        M = patients()
        M[WEIGHT, PATIENT] = 170.4
        entry = [Flagged(WEIGHT, PATIENT, 71.0, 8.3)]
        (told[name],) = explain(ArrayColumns(M), unsure, wide, ("a", name, "c", "d"), entry)
    assert told["weight"] == Cause(UNIT, "in lb instead of kg", 77.3)
    assert told["waist"] == Cause(UNIT, "in cm instead of inches", 67.1)
    assert told["albumin"] is None
    M[WEIGHT, PATIENT] = 156.97  # 71.2 lb and 61.8 cm
    (both,) = explain(ArrayColumns(M), unsure, wide, "abcd", [Flagged(WEIGHT, PATIENT, 71.0, 7.2)])
    assert both is not None
    assert both.sentence == "in lb instead of kg, or in cm instead of inches"
    assert math.isnan(both.corrected)


def test_a_story_that_many_entries_have_is_believed_of_each_sooner() -> None:
    one = Judged(1.0, ((15.0, Cause(DECIMAL, "ten times too large", 3.0), True),))
    plain = Judged(1.0, ((0.01, Cause(DECIMAL, "ten times too large", 3.0), True),))
    assert one.told(kind_shares([one])) is None
    cause = one.told(kind_shares([one] * 30))
    assert cause is not None
    assert cause.kind == DECIMAL
    assert plain.told(kind_shares([one] * 30)) is None
    assert kind_shares([]).sum() == pytest.approx(1.0)
