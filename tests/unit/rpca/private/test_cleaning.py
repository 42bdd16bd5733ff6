"""No bit of a column's contribution depends on another column, and its scale is continuous in the column."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.private.cleaning import contributions
from dcfpca.rpca.private.whole_numbers import FixedPoint, WholeBasis

ROWS, RANK = 150, 5
KINDS = ("ordinary", "low rank", "nearly low rank", "gaps", "unobserved", "zero", "sparse", "huge", "tiny", "infinite")


def basis(seed: int = 0) -> FloatArray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((ROWS, RANK)))[0]


def column(kind: str, seed: int) -> FloatArray:
    draws = np.random.default_rng(seed)
    y, exact = draws.standard_normal(ROWS), basis() @ draws.standard_normal(RANK)
    match kind:
        case "low rank":
            return exact
        case "nearly low rank":
            return exact + 1e-12 * y
        case "gaps":
            return np.where(draws.random(ROWS) < 0.3, np.nan, y)
        case "unobserved":
            return np.full(ROWS, np.nan)
        case "zero":
            return np.zeros(ROWS)
        case "sparse":
            return np.where(draws.random(ROWS) < 0.8, 0.0, y)
        case "huge" | "tiny":
            return y * (1e307 if kind == "huge" else 1e-312)
        case "infinite":
            return np.where(draws.random(ROWS) < 0.1, np.inf, y)
    return y + np.where(draws.random(ROWS) < 0.05, 1e4, 0.0)


def parts(columns: list[FloatArray], rank: int) -> FloatArray:
    """All that a column adds to sums, in one array: Y, its sums with U, and its weight under two clips."""
    block = contributions(np.stack(columns, axis=1), WholeBasis.of(basis(), rank))
    weights = [block.weights(clip) for clip in (1e-3, 1.0)]
    return np.concatenate([block.cleaned.Y, block.cleaned.projections.T, weights])


def shortened(columns: list[FloatArray], rank: int, clip: float) -> FloatArray:
    block = contributions(np.stack(columns, axis=1), WholeBasis.of(basis(), rank))
    return block.cleaned.Y * np.sqrt(block.weights(clip))


COLUMNS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5)), min_size=1, max_size=23)


@settings(max_examples=120, deadline=None)
@given(COLUMNS, st.sampled_from(KINDS), st.integers(0, 23), st.sampled_from([0, 1, RANK]))
def test_no_column_changes_a_bit_of_another(others: list[tuple[str, int]], kind: str, place: int, rank: int) -> None:
    rest = [column(*one) for one in others]
    where = min(place, len(rest))
    alone = [parts([one], rank)[:, 0] for one in rest]
    together = parts(rest, rank)
    more = np.delete(parts([*rest[:where], column(kind, 9), *rest[where:]], rank), where, axis=1)
    assert together.tobytes() == more.tobytes() == np.stack(alone, axis=1).tobytes()


def test_bits_do_not_depend_on_how_a_block_lies_in_memory() -> None:
    block = np.stack([column(kind, 7) for kind in KINDS], axis=1)
    wider = np.full((ROWS, 2 * len(KINDS)), 3.0)
    wider[:, 3 : 3 + len(KINDS)] = block
    found = []
    for M in (block, np.asfortranarray(block), wider[:, 3 : 3 + len(KINDS)]):
        clean = contributions(M, WholeBasis.of(basis(), RANK)).cleaned
        found.append(clean.Y.tobytes() + clean.projections.tobytes() + clean.squares.tobytes())
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("rows", [1, 19, 150, 5000])
def test_whole_numbers_stay_so_small_that_no_sum_of_them_rounds(rows: int) -> None:
    """At the worst: every entry as large as its limit, along one direction, and gross errors where they hurt most."""
    draws, fixed = np.random.default_rng(rows), FixedPoint(rows)
    U = np.linalg.qr(np.concatenate([np.ones((rows, 1)), draws.standard_normal((rows, min(rows, 3) - 1))], axis=1))[0]
    columns = [np.ones(rows), np.where(draws.random(rows) < 0.45, 1e9, 1.0), np.where(draws.random(rows) < 0.5, 3.9, 1)]
    block = contributions(np.stack(columns, axis=1), WholeBasis.of(U, U.shape[1]))
    assert np.array_equal(block.cleaned.Y, np.rint(block.cleaned.Y))
    assert block.cleaned.squares.max() < 2.0**53
    bound = np.linalg.norm(np.abs(block.cleaned.Y) + fixed.farthest, axis=0) * 2.0**fixed.basis_bits
    assert bound.max() < 2.0**53


@settings(max_examples=60, deadline=None)
@given(COLUMNS)
def test_a_histogram_of_lengths_is_the_sum_of_those_of_its_columns(kinds: list[tuple[str, int]]) -> None:
    columns, nothing = [column(*one) for one in kinds], WholeBasis.of(np.zeros((ROWS, 0)), 0)
    alone = sum(contributions(one[:, None], nothing).length_counts() for one in columns)
    assert np.array_equal(contributions(np.stack(columns, axis=1), nothing).length_counts(), alone)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clip", [2.0**-70, 1.0, 2.0**70])
def test_no_contribution_is_longer_than_one_or_not_finite(kind: str, clip: float) -> None:
    one = shortened([column(kind, 3)], RANK, clip)
    assert np.linalg.norm(one) <= 1.0 + 1e-12


def test_a_column_within_the_clip_keeps_its_length_and_direction() -> None:
    y = column("low rank", 1)
    one = shortened([y], RANK, clip=2.0 * float(np.linalg.norm(y)))[:, 0]
    assert np.linalg.norm(one - y / (2.0 * np.linalg.norm(y))) < 1e-5


def test_gross_errors_and_gaps_are_replaced_by_what_the_other_entries_tell() -> None:
    draws = np.random.default_rng(4)
    exact = basis() @ draws.standard_normal((RANK, 40)) * 10.0
    spoiled = draws.random(exact.shape) < 0.1
    M = np.where(spoiled, np.where(draws.random(exact.shape) < 0.5, 1e3, np.nan), exact)
    block = contributions(M, WholeBasis.of(basis(), RANK))
    errors = np.ldexp(block.cleaned.Y, block.units.exponents) - exact
    assert np.linalg.norm(errors) < 0.05 * np.linalg.norm(exact)
    assert np.linalg.norm(errors[~spoiled]) < 1e-3 * np.linalg.norm(exact)


def test_the_scale_does_not_jump_where_the_median_vanishes() -> None:
    """More than half zeros, or nearly so: what is kept of the rest is nearly the same."""
    sparse = np.where(np.arange(100) % 5 == 0, np.random.default_rng(2).standard_normal(100), 0.0)
    kept = []
    for shift in (0.0, 1e-14, 1e-12, 1e-10):
        block = contributions((sparse + shift)[:, None], WholeBasis.of(np.zeros((100, 0)), 0))
        kept.append(np.ldexp(block.cleaned.Y, block.units.exponents))
    assert all(np.abs(one - kept[0]).max() < 1e-3 for one in kept)
    assert np.count_nonzero(kept[0]) == 20
