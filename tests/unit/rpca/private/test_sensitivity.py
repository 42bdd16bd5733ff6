"""Adding or removing any column moves no sum of a private run by more than the schedule states."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dcfpca.errors import BadInput, BadMessage
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray, TensorMessage
from dcfpca.rpca.private.schedule import PrivateSchedule
from dcfpca.rpca.private.site import PrivateFit, PrivatePlan
from dcfpca.rpca.private.whole_numbers import GRID_BITS, check_rounding

ROWS, RANK = 6, 2
SCHEDULE = PrivateSchedule(rounds=3, rho=0.1)
ANY_NUMBER = st.floats(width=64, allow_nan=True, allow_infinity=True)
ORDINARY = st.floats(-10, 10)


def basis(seed: int, width: int) -> FloatArray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((ROWS, width)))[0]


def on_grid(M: FloatArray, round: int, broadcast: TensorMessage) -> FloatArray:
    site = PrivateFit(ArrayColumns(M), RANK)
    answer = (site.answer(PrivatePlan.of(broadcast)) if round else site.opening()).flat()
    return np.ldexp(np.rint(np.ldexp(answer, GRID_BITS)), -GRID_BITS)


def column() -> st.SearchStrategy[FloatArray]:
    return arrays.arrays(np.float64, (ROWS, 1), elements=st.one_of(ORDINARY, ANY_NUMBER))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 12),
    column(),
    st.integers(0, 12),
    st.sampled_from([1e-300, 1e-9, 1.0, 1e9, 1e300]),
    st.floats(1e-12, 1e12),
    st.integers(0, RANK),
    st.sampled_from([RANK, 4, ROWS]),
)
def test_one_column_moves_a_tensor_by_no_more_than_stated(
    others: int, extra: FloatArray, place: int, scale: float, clip: float, rank: int, width: int
) -> None:
    rest = scale * np.random.default_rng(others).standard_normal((ROWS, others))
    more = np.insert(rest, min(place, others), extra[:, 0], axis=1)
    plan = PrivatePlan(basis(width, width), clip, 10.0, rank, 0.1, np.ones(RANK)).broadcast()
    moved = np.linalg.norm(on_grid(more, 1, plan) - on_grid(rest, 1, plan))
    assert moved <= SCHEDULE.sensitivity(1)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 12), column(), st.integers(0, 12))
def test_one_column_moves_the_opening_by_no_more_than_stated(others: int, extra: FloatArray, place: int) -> None:
    rest = np.random.default_rng(others).standard_normal((ROWS, others))
    more = np.insert(rest, min(place, others), extra[:, 0], axis=1)
    nothing = TensorMessage(np.zeros((0, 0)), np.zeros(0))
    moved = np.linalg.norm(on_grid(more, 0, nothing) - on_grid(rest, 0, nothing))
    assert 1.0 <= moved <= SCHEDULE.sensitivity(0)


@pytest.mark.parametrize("factor", [2.0, 0.5, np.nan])
def test_a_site_answers_no_basis_that_is_not_orthonormal(factor: float) -> None:
    plan = PrivatePlan(basis(0, 4), 1.0, 10.0, 2, 0.1, np.ones(RANK)).broadcast()
    swollen = TensorMessage(plan.tensor * factor, plan.scalars)
    with pytest.raises(BadMessage):
        PrivateFit(ArrayColumns(np.ones((ROWS, 3))), RANK).answer(PrivatePlan.of(swollen))


def test_the_answer_to_a_column_does_not_depend_on_the_columns_beside_it() -> None:
    M = np.random.default_rng(1).standard_normal((ROWS, 40))
    M[2, 3], M[:, 7], M[1, 9] = np.nan, 1e200, -1e6
    plan = PrivatePlan(basis(0, 4), 0.5, 10.0, 2, 0.1, np.ones(RANK)).broadcast()
    whole = on_grid(M, 1, plan)
    parts = sum(on_grid(M[:, [index]], 1, plan) for index in range(40))
    assert np.abs(whole - parts).max() < 40 * 2.0**-GRID_BITS


def test_more_columns_than_the_rounding_allows_are_refused() -> None:
    check_rounding(1000, 100, 10**6, 1000)
    with pytest.raises(BadInput):
        check_rounding(1000, 100, 10**7, 1000)
