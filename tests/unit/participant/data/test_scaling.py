"""Centre and scale found by counting are the pooled median and MAD, however the columns are dealt out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import split
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.scaling import DEVIATION, MEDIAN, NARROW, keys_of, split_broadcast, values_of
from dcfpca.rpca.simulate import collect, exchange, simulate
from dcfpca.spec import RunSpec, parse_spec

OF_SCALES = 2.0**-9  # relative, what scales are found to
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def spec(rows: int, **keys: object) -> RunSpec:
    """Nothing is merged, so that medians are those of all entries; tests/unit/rpca/test_scaling.py merges."""
    return parse_spec({"rows": rows, "rank": 1, "rounds": 50, "scaling": "robust", "min_cell": 1, **keys})


def centre_and_scale(matrix: FloatArray, counts: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    method = method_of(spec(matrix.shape[0]))
    sites = [method.site(own) for own in split(matrix, counts)]
    consensus = method.begin()
    while consensus.stage in (MEDIAN, DEVIATION):
        consensus = method.advance(consensus, exchange(method, consensus, sites))
    return split_broadcast(consensus.broadcast, matrix.shape[0])[1:]


def lower_median(matrix: FloatArray) -> FloatArray:
    """The smallest entry that half of the observed entries do not exceed."""
    return np.array([np.nanquantile(row, 0.5, method="inverted_cdf") for row in matrix])


def between(matrix: FloatArray, centre: FloatArray) -> FloatArray:
    """How many values that a feature takes lie from its centre to its median; none where they are equal."""
    low, high = np.sort([centre, lower_median(matrix)], axis=0)
    inside = (matrix >= low[:, None]) & (matrix <= high[:, None])
    taken = np.array([np.unique(row[within]).size for row, within in zip(matrix, inside, strict=True)])
    return np.where(low == high, 0, taken)


def awkward(seed: int = 0, columns: int = 41) -> FloatArray:
    """Features of very different kinds, with gaps."""
    rng = np.random.default_rng(seed)
    rows = [
        rng.standard_normal(columns),
        1e12 * rng.standard_cauchy(columns),
        1e-30 * rng.random(columns) - 5e-30,
        rng.integers(-3, 3, columns),
        -np.exp(rng.normal(0, 20, columns)),
        np.where(rng.random(columns) < 0.8, 0.0, 1.0),
        np.full(columns, -7.25),
    ]
    matrix = np.array(rows, dtype=np.float64)
    matrix[rng.random(matrix.shape) < 0.15] = np.nan
    return matrix


@pytest.mark.parametrize("columns", [1, 2, 40, 41])
def test_centre_and_scale_are_the_pooled_median_and_mad(columns: int) -> None:
    matrix = awkward(columns=columns)
    matrix[np.isnan(matrix).all(axis=1), 0] = 1.0
    centre, scale = centre_and_scale(matrix, (columns,))
    assert (between(matrix, centre) <= np.maximum(1.0, NARROW * columns)).all()
    deviation = lower_median(np.abs(matrix - centre[:, None]))
    np.testing.assert_allclose(scale, np.where(deviation > 0, 1.4826 * deviation, 1.0), rtol=OF_SCALES)


def test_any_split_gives_the_same_centre_and_scale() -> None:
    matrix = awkward()
    whole = centre_and_scale(matrix, (41,))
    for counts in [(1, 40), (20, 1, 20), (1,) * 41]:
        np.testing.assert_array_equal(centre_and_scale(matrix, counts), whole)


def test_small_whole_numbers_are_found_exactly() -> None:
    matrix = np.array([[3.0, -2.0, 5.0], [-1.0, -4.0, -3.0], [0.0, 0.0, 9.0]])
    centre, scale = centre_and_scale(matrix, (2, 1))
    np.testing.assert_array_equal(centre, [3.0, -3.0, 0.0])
    np.testing.assert_array_equal(scale, [1.4826 * 2.0, 1.4826, 1.0])


@given(st.lists(FINITE, min_size=2, max_size=20))
def test_keys_are_in_the_order_of_the_numbers(numbers: list[float]) -> None:
    ordered = np.sort(np.array(numbers)) + 0.0
    assert (np.diff(keys_of(ordered).astype(object)) >= 0).all()
    np.testing.assert_array_equal(values_of(keys_of(ordered)), ordered)


@settings(max_examples=25)
@given(st.lists(st.lists(FINITE.filter(lambda x: abs(x) < 1e140), min_size=5, max_size=5), min_size=1, max_size=4))
def test_the_median_of_any_numbers_is_found(rows: list[list[float]]) -> None:
    matrix = np.array(rows)
    centre, _ = centre_and_scale(matrix, (2, 3))
    truth = lower_median(matrix)
    near = np.abs(centre - truth) <= 2.0**-37 * np.abs(truth) + 1e-300  # one value that many have
    assert (near | (between(matrix, centre) <= 1)).all()


def badly_scaled() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Low-rank data in units that differ by a factor of a million, off centre, with gross errors; and its parts."""
    rng = np.random.default_rng(4)
    units, offset = 10.0 ** rng.integers(-3, 4, 40), 50 * rng.standard_normal(40)
    L = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 90))
    S = np.where(rng.random(L.shape) < 0.05, rng.choice([-20.0, 20.0], L.shape), 0.0)
    return (L + S + offset[:, None]) * units[:, None], (L + offset[:, None]) * units[:, None], units, S


def test_results_come_back_in_the_units_of_the_data() -> None:
    M, L, units, S = badly_scaled()
    # Centring by the median leaves a constant offset, so the scaled data has one more dimension.
    method = method_of(spec(40, rank=3, closing_rounds=False))
    assert method.scaled
    done = simulate(method, split(M, (30, 60)))
    np.testing.assert_allclose(done.low_rank / units[:, None], L / units[:, None], atol=1e-4)
    found = done.outliers.toarray() / units[:, None]
    np.testing.assert_allclose(found[S != 0], S[S != 0], atol=1e-3)


@pytest.mark.parametrize("closing", [False, True])
def test_the_model_and_the_coefficients_give_the_low_rank_part_in_the_units_of_the_data(closing: bool) -> None:
    # The third direction is the offset that medians leave, which not every site moves along: it is shown all the same.
    method = method_of(spec(40, rank=3, closing_rounds=closing, min_carriers=1))
    done = simulate(method, split(badly_scaled()[0], (30, 60)))
    model, first = method.model(done.consensus), done.results[0]
    L = model["centre"][:, None] + model["scale"][:, None] * (model["U"] @ first.V.T)
    np.testing.assert_allclose(first.L, L, rtol=1e-7, atol=1e-12 * np.abs(first.L).max())


def test_closing_rounds_recover_the_same_data_without_scaling() -> None:
    # The fit does not: one noise for all features is that of the largest.
    M, L, units, _ = badly_scaled()
    methods = [method_of(spec(40, rank=3, scaling="none", closing_rounds=closing)) for closing in (False, True)]
    found = [simulate(method, split(M, (30, 60))).low_rank for method in methods]
    fit, closed = (np.max(np.abs(each - L) / units[:, None]) for each in found)
    assert fit > 1e-3
    assert closed < 1e-4


@pytest.mark.parametrize("name", ["subspace", "gradient"])
def test_a_restored_site_goes_on_as_if_nothing_had_happened(name: str) -> None:
    M, *_ = badly_scaled()
    method = method_of(spec(40, rank=3, method=name, rounds=4, tolerance=0))
    sites = [method.site(own) for own in split(M, (30, 60))]
    consensus = method.begin()
    while consensus.outcome is None:
        fresh = method.site(split(M, (30, 60))[0])
        fresh.restore(sites[0].snapshot())
        sites[0] = fresh
        consensus = method.advance(consensus, exchange(method, consensus, sites))
        layout = method.stage(consensus.stage).down
        assert consensus.broadcast.flat().size == layout.size
    alone = simulate(method, split(M, (30, 60)))
    np.testing.assert_array_equal(collect(sites[0], consensus).L, alone.results[0].L)
