"""The accountant against the formula and published values."""

import math

import numpy as np
import pytest

from dcfpca.privacy.zcdp import epsilon_of, rho_of


def best_epsilon(rho: float, delta: float) -> float:
    """Canonne, Kamath and Steinke (2020), Proposition 12, minimised over a fine grid of orders."""
    orders = 1.0 + np.logspace(-3, 6, 20_000)
    bounds = rho * orders + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    return float(bounds.min())


@pytest.mark.parametrize("delta", [1e-5, 1e-6, 1e-9])
@pytest.mark.parametrize("rho", [1e-4, 0.005, 0.1, 0.5, 3.0])
def test_epsilon_is_the_formula_from_above(rho: float, delta: float) -> None:
    best = best_epsilon(rho, delta)
    assert best - 1e-9 <= epsilon_of(rho, delta) <= 1.002 * best + 1e-3


def test_epsilon_agrees_with_the_published_figure_of_the_2020_census() -> None:
    # Persons: ρ = 2.56, published as ε = 17.14 at δ = 1e-10.
    assert epsilon_of(2.56, 1e-10) == pytest.approx(17.14, abs=0.03)


@pytest.mark.parametrize("rho", [0.01, 0.1, 1.0, 2.56])
def test_epsilon_is_below_the_simple_bound_of_bun_and_steinke(rho: float) -> None:
    assert epsilon_of(rho, 1e-10) < rho + 2 * math.sqrt(rho * math.log(1e10))


def test_rho_inverts_epsilon() -> None:
    for epsilon in (0.1, 1.0, 8.0):
        rho = rho_of(epsilon, 1e-6)
        assert epsilon_of(rho, 1e-6) <= epsilon < epsilon_of(1.001 * rho, 1e-6)
