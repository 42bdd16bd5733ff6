"""A matrix whose rows look like persons is doubted; one of features is not."""

from __future__ import annotations

import pytest

from participant.data.facts import orientation_doubt

PATIENTS = tuple(f"P{number:05d}" for number in range(200))
GENES = tuple(f"gene{'ABCD'[number % 4]}-{'xyz'[number % 3]}" for number in range(200))


@pytest.mark.parametrize(
    "names",
    [
        PATIENTS,
        tuple(str(10_000 + number) for number in range(200)),
        tuple(f"subject_{number:03d}" for number in range(200)),
        tuple(f"{number:08x}-0000-4000-8000-000000000000" for number in range(200)),
        tuple(f"person{number}@example.org" for number in range(200)),
        PATIENTS[:190] + GENES[:10],
    ],
    ids=["codes", "numbers", "subjects", "uuids", "addresses", "mostly"],
)
def test_many_rows_named_like_records_are_doubted(names: tuple[str, ...]) -> None:
    assert "200 features and only 12 samples" in orientation_doubt(200, 12, names)


@pytest.mark.parametrize(
    ("columns", "names"),
    [(12, GENES), (12, ()), (21, PATIENTS), (12, PATIENTS[:100] + GENES[:100])],
    ids=["features", "unnamed", "enough columns", "half"],
)
def test_features_unnamed_rows_and_matrices_with_many_columns_are_not(columns: int, names: tuple[str, ...]) -> None:
    assert orientation_doubt(200, columns, names) == ""
