"""Which cohorts a site refuses because of the sums that were opened over the same data before."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcfpca.secagg.differencing_check import MOST_COHORTS, PastRun, exposure


def cohorts(*texts: str) -> list[PastRun]:
    return [PastRun(f"run-{place}", frozenset(text)) for place, text in enumerate(texts, start=1)]


def test_the_same_cohort_again_exposes_nobody() -> None:
    assert exposure(cohorts("abcde"), frozenset("abcde"), 3) is None


@pytest.mark.parametrize(("new", "members"), [("abcd", ("e",)), ("abcdef", ("f",)), ("abc", ("d", "e"))])
def test_a_cohort_that_differs_by_too_few_is_refused_with_run_and_members(new: str, members: tuple[str, ...]) -> None:
    found = exposure(cohorts("abcde"), frozenset(new), 3)
    assert found is not None
    assert (found.runs, found.members) == (("run-1",), members)
    assert "run-1" in str(found)
    assert members[0] in str(found)


def test_a_cohort_that_differs_by_enough_is_accepted() -> None:
    assert exposure(cohorts("abcdef"), frozenset("abc"), 3) is None
    assert exposure(cohorts("abcdef"), frozenset("abcghi"), 3) is None


def test_swapping_one_member_is_a_difference_of_two() -> None:
    assert exposure(cohorts("abcd"), frozenset("abce"), 3) is not None
    assert exposure(cohorts("abcd"), frozenset("abce"), 2) is None


def test_a_cohort_that_no_single_run_is_near_but_the_sum_of_two_is_refused() -> None:
    past = cohorts("abcdef", "ghijkl")
    found = exposure(past, frozenset("abcdefghijklm"), 3)
    assert found is not None
    assert (found.runs, found.members) == (("run-1", "run-2"), ("m",))
    assert all(exposure([one], frozenset("abcdefghijklm"), 3) is None for one in past)


def test_a_combination_with_weights_is_found() -> None:
    # 1_{abcd} + 1_{abef} + 1_{cdef} = 2 · 1_{abcdef}, so abcdefg exposes g.
    found = exposure(cohorts("abcd", "abef", "cdef"), frozenset("abcdefg"), 2)
    assert found is not None
    assert found.members == ("g",)


def test_what_is_a_combination_of_earlier_runs_adds_nothing() -> None:
    assert exposure(cohorts("abcd", "efgh"), frozenset("abcdefgh"), 3) is None


def test_a_cohort_below_the_minimum_is_an_exposure_by_itself() -> None:
    found = exposure([], frozenset("ab"), 3)
    assert found is not None
    assert found.members == ("a", "b")


def test_too_many_different_cohorts_are_refused_rather_than_guessed() -> None:
    names = [f"s{place}" for place in range(60)]
    past = [PastRun(str(place), frozenset(names[place : place + 20])) for place in range(MOST_COHORTS)]
    found = exposure(past, frozenset(names), 3)
    assert found is not None
    assert found.members == ()


def _by_brute_force(past: list[PastRun], cohort: frozenset[str], limit: int) -> bool:
    names = sorted(frozenset().union(cohort, *(run.cohort for run in past)))
    rows = np.array([[float(name in run.cohort) for name in names] for run in past]).reshape(len(past), len(names))
    new = np.array([float(name in cohort) for name in names])

    def spanned(columns: list[int]) -> bool:
        if not columns:
            return True
        return np.linalg.matrix_rank(np.vstack([rows, new])[:, columns]) == (
            np.linalg.matrix_rank(rows[:, columns]) if len(rows) else 0
        )

    if spanned(list(range(len(names)))):
        return False
    places = range(len(names))
    return any(
        spanned([place for place in places if place not in chosen])
        for size in range(1, limit)
        for chosen in combinations(places, size)
    )


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.frozensets(st.sampled_from("abcdefg"), min_size=2), max_size=4),
    st.frozensets(st.sampled_from("abcdefg"), min_size=2),
    st.integers(1, 4),
)
def test_it_agrees_with_looking_at_every_set_of_members(
    earlier: list[frozenset[str]], cohort: frozenset[str], limit: int
) -> None:
    past = [PastRun(str(place), members) for place, members in enumerate(earlier)]
    assert (exposure(past, cohort, limit) is not None) == _by_brute_force(past, cohort, limit)
