"""One site's columns count for no more than `max_share` in the sums that refine U, and what is exact stays exact."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore

import numpy as np
import pytest

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns, split
from dcfpca.rpca.method import FloatArray, TensorMessage, Total
from dcfpca.rpca.simulate import exchange, simulate
from dcfpca.rpca.stage_list import Method, column_weight
from dcfpca.spec import parse_spec
from participant.engine.partitioned_site import PartitionedSite, PartWorkers

ROWS, RANK = 30, 3
UNEVEN = (20, 30, 450)


def _exact(seed: int, columns: int) -> tuple[FloatArray, FloatArray]:
    """A low-rank matrix, and the same with gross errors."""
    rng = np.random.default_rng(seed)
    L = rng.normal(size=(ROWS, RANK)) @ rng.normal(size=(RANK, columns))
    return L, L + 20.0 * (rng.random(L.shape) < 0.04) * rng.choice([-1.0, 1.0], L.shape)


def _noisy(seed: int, columns: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    return _exact(seed, columns)[1] + 0.3 * rng.normal(size=(ROWS, columns))


def _method(share: float, **keys: object) -> Method:
    return method_of(parse_spec({"rows": ROWS, "max_share": share, "min_cell": 1, **keys}))


@pytest.mark.parametrize(("own", "of_all", "most", "weight"), [(90, 100, 0.5, 1 / 9), (80, 100, 0.6, 0.375)])
def test_a_weight_makes_a_sites_columns_the_most_of_what_counts(
    own: int, of_all: float, most: float, weight: float
) -> None:
    assert column_weight(own, of_all, most) == pytest.approx(weight)
    assert weight * own / (weight * own + of_all - own) == pytest.approx(most)


@pytest.mark.parametrize(("own", "of_all", "most"), [(50, 100, 0.5), (90, 100, 1.0), (90, 90, 0.5), (20, 100, 0.5)])
def test_who_has_no_more_than_that_or_is_alone_counts_whole(own: int, of_all: float, most: float) -> None:
    assert column_weight(own, of_all, most) == 1.0


@pytest.mark.parametrize("cut", [UNEVEN, (10, 80)])
def test_what_is_exact_stays_exact_however_uneven_the_sites(cut: tuple[int, ...]) -> None:
    L, M = _exact(1, sum(cut))
    method = _method(0.5, max_rank=6)
    run = simulate(method, split(M, cut))
    np.testing.assert_allclose(run.low_rank, L, atol=1e-6)
    assert run.consensus.round == simulate(_method(1.0, max_rank=6), split(M, cut)).consensus.round


def test_where_no_site_has_more_the_cap_changes_nothing() -> None:
    M, cut = _noisy(2, 300), (90, 90, 120)
    with_cap, without = (simulate(_method(share), split(M, cut)) for share in (0.5, 1.0))
    np.testing.assert_array_equal(with_cap.consensus.broadcast.flat(), without.consensus.broadcast.flat())


@pytest.mark.slow
def test_sums_with_a_capped_site_keep_their_laws_and_are_the_same_of_its_parts() -> None:
    method, cut = _method(0.5), split(_noisy(3, sum(UNEVEN)), UNEVEN)
    *small, large = (method.site(columns) for columns in cut)
    workers = PartWorkers(ThreadPoolExecutor(1), Semaphore(1), 1, None)
    in_parts = PartitionedSite(method, ArrayColumns(cut[-1].read(0, UNEVEN[-1])), 100, workers)
    consensus, uncapped = method.begin(), 0
    while consensus.outcome is None:
        of_parts, of_whole = exchange(method, consensus, [in_parts]), exchange(method, consensus, [large])
        if consensus.stage != "check":  # draws samples anew, in each part its own
            parts, whole = of_parts.sums.flat(), of_whole.sums.flat()
            np.testing.assert_allclose(parts, whole, atol=1e-6 * np.abs(whole).max())
        others = exchange(method, consensus, small)
        sums = TensorMessage.unflatten(method.stage(consensus.stage).up, others.sums.flat() + of_whole.sums.flat())
        total = Total(sums, len(cut))
        assert method.conserved(consensus, total) == ""
        uncapped += consensus.stage == "covariance" and total.sums.scalars[0] > 0.21
        consensus = method.advance(consensus, total)
    assert not uncapped  # 50 columns of the small sites and 450/9 of the large one, of 500
