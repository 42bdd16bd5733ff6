"""A site's own view: the shared shape, units and null stand until the site's own values clearly speak against them."""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np

from dcfpca.rpca.calibration.calibration import Calibration
from dcfpca.rpca.calibration.empirical_null import SIZE_BINS, Null, evidence_against
from dcfpca.rpca.calibration.normal_scores import SCORES
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.own_view.own_view import SAMPLE, beyond_chance, columns_sample, many_values, own_knots, own_null
from dcfpca.rpca.refinement.noise_scale import count_sizes

ROWS, COLUMNS = 40, 90
FEW = np.zeros(ROWS, dtype=bool)


def _calibration() -> Calibration:
    """Log-normal features, and the null of normal deviations."""
    one = np.ones(ROWS)
    return replace(
        Calibration.unknown(ROWS), knots=np.tile(np.exp(SCORES), (ROWS, 1)), reach=one, above=one, below=one,
        freedom=100.0, unit=1.0, wrong=1e-4, cut=5.0,
    )  # fmt: skip


def test_chance_does_not_give_a_site_a_shape_of_its_own() -> None:
    values = np.exp(np.random.default_rng(1).normal(size=(ROWS, COLUMNS)))
    known = _calibration()
    assert np.mean(own_knots(known, values, FEW, FEW) != known.knots) < 0.1


def test_a_tail_that_the_site_does_not_have_is_not_its_own() -> None:
    values = np.random.default_rng(2).normal(size=(ROWS, COLUMNS))
    straight = own_knots(_calibration(), values, FEW, FEW)
    slopes = np.diff(straight, axis=1) / np.diff(SCORES)
    assert np.mean(np.ptp(slopes, axis=1) < 0.1) > 0.9


def test_units_and_cut_stay_shared_at_a_site_like_the_others() -> None:
    known, z = _calibration(), np.random.default_rng(3).normal(size=(ROWS, COLUMNS))
    mine = own_null(known, z, 0.2, ~FEW)
    assert np.array_equal(mine.above, known.above)
    assert mine.cut == known.cut


def test_a_site_does_not_believe_a_null_that_others_inflated() -> None:
    z = np.random.default_rng(4).normal(size=(ROWS, COLUMNS))
    told = replace(_calibration(), above=np.full(ROWS, 10.0), below=np.full(ROWS, 10.0), freedom=2.5, cut=40.0)
    mine = own_null(told, z, 0.2, ~FEW)
    assert np.abs(mine.above - 1.0).max() < 0.4
    assert mine.cut < 8.0


def test_evidence_against_a_null_grows_with_what_it_does_not_explain() -> None:
    sizes = np.abs(np.random.default_rng(5).normal(size=(1, 4000)))
    counts = count_sizes(sizes, np.ones(1), SIZE_BINS)[0]
    found = [evidence_against(Null(freedom, 1.0, 1e-4, 5.0), counts) for freedom in (200.0, 5.0, 2.5)]
    assert 0.0 <= found[0] < 8.0 < found[1] < found[2]


def test_nothing_of_chance_is_own_and_all_of_twice_as_much() -> None:
    assert beyond_chance(np.array([0.5, 1.0, 1.5, 2.0, 9.0]), 1.0).tolist() == [0.0, 0.0, 0.5, 1.0, 1.0]


def test_sides_that_only_others_have_unlike_are_equal_here() -> None:
    z = np.random.default_rng(6).normal(size=(ROWS, 400))
    mine = own_null(replace(_calibration(), above=np.full(ROWS, 7.0), below=np.full(ROWS, 1.6)), z, 0.2, ~FEW)
    np.testing.assert_allclose(mine.above / mine.below, 1.0, atol=0.3)
    np.testing.assert_allclose(np.sqrt(mine.above * mine.below), 1.0, atol=0.25)


def test_sides_that_are_unlike_here_too_stay_so_in_the_sites_own_size() -> None:
    z = np.random.default_rng(7).normal(size=(ROWS, 400))
    z = np.where(z > 0.0, 3.0 * z, 1.5 * z)
    mine = own_null(replace(_calibration(), above=np.full(ROWS, 1.0), below=np.full(ROWS, 0.5)), z, 0.2, ~FEW)
    np.testing.assert_allclose(mine.above / mine.below, 2.0)
    np.testing.assert_allclose(np.sqrt(mine.above * mine.below), 2.2, rtol=0.25)


def test_grades_and_features_of_few_samples_are_not_taken_for_many_values() -> None:
    rng = np.random.default_rng(8)
    M = rng.normal(size=(4, 400))
    M[1] = rng.integers(1, 11, 400)
    M[2, 8:] = np.nan
    np.testing.assert_array_equal(many_values(M), [True, False, False, True])


def test_a_sample_of_columns_keeps_no_block_in_memory() -> None:
    alive, most = list[weakref.ref[FloatArray]](), 0

    class Read:
        shape = (512, 8 * SAMPLE)

        def read(self, start: int, stop: int) -> FloatArray:
            nonlocal most
            block = np.full((512, stop - start), float(start))
            alive.append(weakref.ref(block))
            most = max(most, sum(one() is not None for one in alive))
            return block

    assert columns_sample(Read()).shape == (512, SAMPLE)
    assert len(alive) > 50
    assert most <= 2
