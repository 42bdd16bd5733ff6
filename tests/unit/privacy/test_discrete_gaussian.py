"""The sampler has exactly the distribution it states, also where a draw must be decided in exact arithmetic."""

import ast
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import dcfpca.privacy
import dcfpca.rpca.private
from dcfpca.errors import BadInput
from dcfpca.privacy import discrete_gaussian as sampler
from dcfpca.privacy.discrete_gaussian import LazyUniform, discrete_gaussian

DRAWS = 100_000


def entropy(seed: int) -> Callable[[int], bytes]:
    return np.random.default_rng(seed).bytes


@pytest.mark.parametrize("scale", [1, 2, 5, 40])
def test_counts_agree_with_the_probabilities_of_the_discrete_gaussian(scale: int) -> None:
    drawn = discrete_gaussian(scale, DRAWS, entropy(scale))
    support = np.arange(-4 * scale, 4 * scale + 1)
    weights = np.exp(-((np.arange(-60 * scale, 60 * scale + 1) / scale) ** 2) / 2)
    inner = np.exp(-((support / scale) ** 2) / 2) / weights.sum()
    expected = np.append(inner, 1 - inner.sum()) * DRAWS
    seen = np.array([*(np.count_nonzero(drawn == x) for x in support), np.count_nonzero(abs(drawn) > 4 * scale)])
    usable = expected > 5
    folded = [np.append(part[usable], part[~usable].sum()) for part in (seen, expected)]
    assert stats.chisquare(folded[0], folded[1]).pvalue > 1e-4


def test_a_large_scale_has_the_deviation_and_shape_of_a_normal() -> None:
    drawn = discrete_gaussian(2**30, DRAWS, entropy(3)) / 2**30
    assert abs(drawn.std() - 1) < 5 / math.sqrt(2 * DRAWS)
    assert stats.kstest(drawn, "norm").pvalue > 1e-4


def test_low_bits_are_uniform() -> None:
    low = discrete_gaussian(2**30, DRAWS, entropy(4)) & 15
    assert stats.chisquare(np.bincount(low, minlength=16)).pvalue > 1e-4


def test_the_exact_decision_agrees_with_the_probability_to_every_bit_drawn() -> None:
    probability = Fraction(math.exp(-0.5)).limit_denominator(10**15)
    below, above = int((probability - Fraction(1, 10**12)) * 2**64), int((probability + Fraction(1, 10**12)) * 2**64)
    assert LazyUniform(below, entropy(0)).is_below_exp(Fraction(1, 2))
    assert not LazyUniform(above, entropy(0)).is_below_exp(Fraction(1, 2))


def test_a_draw_that_begins_like_the_probability_is_settled_by_further_bits() -> None:
    asked: list[int] = []

    def counting(size: int, fill: bytes) -> bytes:
        asked.append(size)
        return fill * size

    first = int(Fraction("0.60653065971263342360379953499118045344191813548718695568289") * 2**64)
    assert LazyUniform(first, lambda size: counting(size, b"\x00")).is_below_exp(Fraction(1, 2))
    assert not LazyUniform(first, lambda size: counting(size, b"\xff")).is_below_exp(Fraction(1, 2))
    assert asked == [8, 8]


def test_all_comparisons_of_one_uniform_number_see_the_same_digits() -> None:
    draws: list[int] = []

    def once(size: int) -> bytes:
        draws.append(size)
        return b"\xff" * size

    number = LazyUniform(int(Fraction("0.60653065971263342360379953499118045344191813548718695568289") * 2**64), once)
    assert [number.is_below_exp(Fraction(1, 2)) for _ in range(3)] == [False] * 3
    assert draws == [8]


def test_the_number_of_successes_in_a_row_is_geometric() -> None:
    k = sampler._geometric(DRAWS, entropy(6))
    expected = np.array([(1 - math.exp(-0.5)) * math.exp(-i / 2) for i in range(12)] + [math.exp(-6)]) * DRAWS
    assert stats.chisquare(np.bincount(np.minimum(k, 12), minlength=13), expected).pvalue > 1e-4
    assert [sampler._successes(word, entropy(0)) for word in (2**61, 2**63, 2**64 - 1)] == [4, 1, 0]


def test_every_doubtful_draw_goes_through_exact_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "DOUBTFUL", 2.0)
    exact = discrete_gaussian(3, 300, entropy(5))
    monkeypatch.undo()
    assert np.array_equal(exact, discrete_gaussian(3, 300, entropy(5)))


def test_a_scale_out_of_range_is_refused() -> None:
    with pytest.raises(BadInput):
        discrete_gaussian(0, 1, entropy(0))


def test_no_floating_point_gaussian_is_on_the_path() -> None:
    forbidden = {"normal", "standard_normal", "gauss", "normalvariate", "default_rng", "RandomState"}
    folders = [Path(module.__path__[0]) for module in (dcfpca.privacy, dcfpca.rpca.private)]
    files = [file for folder in folders for file in folder.glob("*.py")]
    assert files
    for file in files:
        names = {node.attr for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)}
        assert not names & forbidden, file
