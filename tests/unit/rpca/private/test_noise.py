"""The noise of an opened sum, and an empirical audit of the mechanism by a canary column."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dcfpca.errors import BadInput
from dcfpca.privacy.settings import MOST_SITES
from dcfpca.privacy.zcdp import epsilon_of, rho_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus, FloatArray, Total
from dcfpca.rpca.private.schedule import PrivateSchedule
from dcfpca.rpca.private.site import PrivatePlan
from dcfpca.rpca.private.stages import PrivateSolver, private_method
from dcfpca.rpca.private.whole_numbers import GRID_BITS, noised, site_scale
from dcfpca.rpca.simulate import NoisySum
from dcfpca.secagg.fixed_point import block_layout, decode, encode

ROWS, RANK, SITES, CONSPIRATORS = 40, 2, 4, 1


def solver(rho: float, conspirators: int = CONSPIRATORS) -> PrivateSolver:
    return PrivateSolver(ROWS, RANK, PrivateSchedule(1, rho), conspirators, clip=1.0)


def entropy(seed: int) -> Callable[[int], bytes]:
    return np.random.default_rng(seed).bytes


def opened(mechanism: PrivateSolver, silent: int, seed: int) -> tuple[Total, FloatArray]:
    """The sum of the first tensor round, and the same without noise."""
    data = [np.random.default_rng(site).standard_normal((ROWS, 30)) for site in range(SITES)]
    method = private_method(mechanism)
    sites = [method.site(ArrayColumns(M)) for M in data]
    U = np.linalg.qr(np.random.default_rng(9).standard_normal((ROWS, ROWS)))[0]
    plan = PrivatePlan(U, 1.0, 120.0, 0, 0.1, np.zeros(RANK)).broadcast()
    consensus = Consensus(1, "sketch", plan)
    exact = np.sum([site.answer(consensus).tensor for site in sites], axis=0)
    return NoisySum(method, entropy(seed), silent).of(consensus, sites), exact


@pytest.mark.parametrize("silent", [0, CONSPIRATORS])
def test_the_sum_has_noise_of_the_stated_deviation_also_without_the_conspirators(silent: int) -> None:
    mechanism = solver(rho=0.1)
    total, exact = opened(mechanism, silent, seed=1)
    noise = (total.sums.tensor - exact).ravel()
    honest = SITES - CONSPIRATORS
    expected = mechanism.schedule.deviation(1) * math.sqrt((SITES - silent) / honest)
    assert abs(noise.std() / expected - 1) < 5 / math.sqrt(2 * noise.size)
    assert stats.kstest(noise / expected, "norm").pvalue > 1e-4
    if not silent:
        assert mechanism.deviation("sketch", SITES) == pytest.approx(expected)


def test_noise_is_on_the_grid_and_many_steps_wide() -> None:
    sent = noised(np.zeros(1000), 0.8, 3, entropy(0))
    steps = np.ldexp(sent, GRID_BITS)
    assert np.array_equal(steps, np.rint(steps))
    assert site_scale(0.8, 1) >= 2**20


@pytest.mark.parametrize("members", [2, 3, MOST_SITES])
def test_the_fixed_point_of_the_secure_sum_holds_noisy_updates_exactly(members: int) -> None:
    sent = noised(np.random.default_rng(1).uniform(-1e6, 1e6, 500), 40.0, 2, entropy(1))
    layout = block_layout(private_method(solver(0.1)).stage("sketch").up)
    layout = replace(layout, blocks=(replace(layout.blocks[0], size=sent.size),))
    integers = encode(sent, layout, layout.first_exponents, members, 64)
    assert np.array_equal(decode(integers, layout, layout.first_exponents, members, 64), sent)


def test_no_honest_site_is_refused() -> None:
    with pytest.raises(BadInput):
        noised(np.zeros(3), 1.0, 0, entropy(0))


def canary_scores(mechanism: PrivateSolver, present: bool, trials: int, noise: bool) -> FloatArray:
    """The canary's own direction in the sum, over many runs of one round of the mechanism."""
    # The worst column of the mechanism: of full length along the only direction of U, and none of it an outlier.
    M = np.full((1, 1), 100.0 if present else 0.0)
    plan = PrivatePlan(np.ones((1, 1)), 1.0, 1.0, 1, 0.1, np.zeros(RANK)).broadcast()
    exact = private_method(mechanism).site(ArrayColumns(M)).answer(Consensus(1, "sketch", plan)).flat()
    if not noise:
        return np.repeat(exact[0], trials)
    deviation = mechanism.schedule.deviation(1)
    return noised(np.repeat(exact[0], trials), deviation, 1, entropy(7 + present))


def audited_epsilon(mechanism: PrivateSolver, delta: float, noise: bool) -> float:
    """A lower bound on ε that holds with 99.9 % confidence, from the best threshold of a membership test."""
    trials = 40_000
    inside, outside = (canary_scores(mechanism, present, trials, noise) for present in (True, False))
    best = 0.0
    for threshold in np.quantile(np.concatenate([inside, outside]), np.linspace(0.05, 0.95, 19)):
        hits, alarms = (int(np.count_nonzero(scores > threshold)) for scores in (inside, outside))
        true_rate = stats.beta.ppf(0.0005, hits, trials - hits + 1) if hits else 0.0
        false_rate = stats.beta.ppf(0.9995, alarms + 1, trials - alarms) if alarms < trials else 1.0
        if true_rate > delta:
            best = max(best, math.log((true_rate - delta) / false_rate))
    return best


def test_an_audit_by_a_canary_stays_below_the_stated_epsilon_and_finds_missing_noise() -> None:
    delta, stated = 1e-5, 1.0
    mechanism = solver(rho_of(stated, delta), conspirators=0)
    spent = epsilon_of(mechanism.schedule.rho_of(1), delta)
    with_noise = audited_epsilon(mechanism, delta, noise=True)
    assert 0.1 * spent < with_noise <= spent
    assert audited_epsilon(mechanism, delta, noise=False) > stated
