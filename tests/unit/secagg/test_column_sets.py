"""Columns are recognised in any order and file, as a multiset, by whoever has the key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dcfpca.errors import BadInput
from dcfpca.secagg.column_sets import ColumnHasher, ColumnSet
from dcfpca.secagg.differencing_check import MOST_COHORTS, PastRun, column_exposure

KEY = bytes(range(32))
M = np.random.default_rng(1).normal(size=(4, 30))


def columns(data: np.ndarray, owners: Sequence[str] = (), features: Sequence[str] = (), key: bytes = KEY) -> ColumnSet:
    hasher = ColumnHasher(key, features)
    for start in range(0, data.shape[1], 7):
        hasher.add(data[:, start : start + 7])
    return hasher.columns([], owners)


def exposed(now: np.ndarray, *past: np.ndarray, fewest: int = 5) -> tuple[list[int], int] | None:
    runs = [PastRun(f"run-{place}", frozenset("ab"), columns(one)) for place, one in enumerate(past)]
    found = column_exposure(runs, columns(now), fewest)
    return None if found is None else (found.places.tolist(), found.gone)


def test_the_same_columns_in_another_order_are_the_same_set() -> None:
    features = ("b", "a", "d", "c")
    assert columns(M).digest == columns(M[:, ::-1]).digest
    turned = columns(M[[1, 0, 3, 2]], features=("a", "b", "c", "d"))
    assert columns(M, features=features).digest == turned.digest
    assert columns(M).digest != columns(M[:, 1:]).digest


def test_all_unobserved_entries_and_both_zeros_are_alike() -> None:
    other = M.copy()
    other[0, 0], other[1, 1] = np.nan, 0.0
    same = other.copy()
    same[0, 0], same[1, 1] = np.frombuffer(np.uint64(0xFFF8000000000123).tobytes(), "<f8")[0], -0.0
    assert columns(other).digest == columns(same).digest


def test_a_second_column_with_the_same_values_is_one_more_column() -> None:
    twice = np.concatenate([M, M[:, :1]], axis=1)
    assert columns(twice).digest != columns(M).digest
    assert exposed(twice, M) == ([30], 0)


def test_without_the_key_nothing_is_recognised_and_everything_counts_as_shared() -> None:
    ours, theirs = columns(M), columns(M, key=bytes(32))
    assert not np.isin(ours.contents, theirs.contents).any()
    assert ours.shared_with(theirs).all()
    assert ours.shared_with(None).all()


def test_a_person_is_recognised_whatever_became_of_the_values() -> None:
    names = [f"p{place}" for place in range(30)]
    before, after = columns(M[:, :20], names[:20]), columns(M + 1.0, names)
    assert after.shared_with(before).tolist() == [True] * 20 + [False] * 10
    assert not columns(M + 1.0).shared_with(columns(M)).any()


def test_what_is_kept_is_read_back_and_damage_is_noticed() -> None:
    ours = columns(M, [str(place) for place in range(30)])
    kept = ours.to_bytes()
    assert len(kept) == 8 + 16 * 30
    assert ColumnSet.from_bytes(kept).digest == ours.digest
    with pytest.raises(BadInput):
        ColumnSet.from_bytes(kept[:-1])


def test_few_columns_that_came_went_or_changed_are_exposed_and_many_are_not() -> None:
    assert exposed(M, M[:, :-1]) == ([29], 0)
    assert exposed(M[:, 2:], M) == ([], 2)
    changed = M.copy()
    changed[0, 3] += 1.0
    assert exposed(changed, M) == ([3], 1)
    assert exposed(M, M[:, 5:]) is None
    assert exposed(M[:, ::-1], M) is None
    assert exposed(M[:, :10], M[:, 20:]) is None


def test_combinations_of_several_earlier_states_are_seen() -> None:
    base, one, two = M[:, :10], M[:, :16], np.concatenate([M[:, :10], M[:, 16:24]], axis=1)
    assert exposed(M[:, :25], base, one, two) == ([24], 0)
    assert exposed(M[:, :25], base, one) is None


def test_what_a_run_over_the_same_columns_has_told_is_not_told_anew() -> None:
    assert exposed(M, M[:, :-1], M) is None


def test_each_of_many_earlier_states_is_compared() -> None:
    rng = np.random.default_rng(2)
    others = [rng.normal(size=(4, 12)) for _ in range(2 * MOST_COHORTS)]
    assert exposed(M, M[:, :-1], *others) == ([29], 0)
    assert exposed(M, *others) is None
