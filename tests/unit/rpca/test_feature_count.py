"""Sites may lack features, if enough others have them; a feature that too few have ends the run before it is summed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dcfpca.errors import BadInput
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.simulate import collect, exchange, simulate
from dcfpca.rpca.stage_list import Method
from dcfpca.spec import RunSpec, parse_spec
from participant.engine.thread_engine import Engine

NAMES = tuple(f"f{k}" for k in range(12))


def spec(**keys: Any) -> RunSpec:
    return parse_spec({"features": NAMES, "rank": 2, "missing_features": "allow", **keys})


def sites_lacking(*lacking: int) -> list[FloatArray]:
    """Four sites with noisy rank-2 data; as many of them as each number says lack features 0, 1, …"""
    rng = np.random.default_rng(1)
    U = rng.normal(size=(12, 2))
    made = [U @ rng.normal(size=(2, 60)) + 0.01 * rng.normal(size=(12, 60)) for _ in range(4)]
    for feature, count in enumerate(lacking):
        for own in made[:count]:
            own[feature] = np.nan
    return made


def run(method: Method, data: list[FloatArray]) -> Any:
    return simulate(method, [ArrayColumns(own) for own in data])


def test_a_feature_that_too_few_sites_have_is_named_before_anything_else_is_summed() -> None:
    method, data = method_of(spec()), sites_lacking(0, 2, 1, 4)
    sites = [method.site(ArrayColumns(own)) for own in data]
    begin = method.begin()
    with pytest.raises(BadInput, match="fewer than 3 sites have any entry of f1, f3: leave such features out"):
        method.advance(begin, exchange(method, begin, sites))


@pytest.mark.parametrize("scaling", ["none", "robust"])
def test_after_the_count_the_run_is_the_one_without_it(scaling: str) -> None:
    data = sites_lacking(1, 0, 1)
    counted, plain = (method_of(spec(missing_features=word, scaling=scaling)) for word in ("allow", "refuse"))
    assert [counted.stages[0].name, *(one.name for one in plain.stages)] == [one.name for one in counted.stages]
    mine, alone = run(counted, data), run(plain, data)
    assert mine.consensus.round == alone.consensus.round + 1
    np.testing.assert_array_equal(mine.low_rank, alone.low_rank)
    assert counted.verdict(mine.consensus) == plain.verdict(alone.consensus)
    np.testing.assert_array_equal(counted.model(mine.consensus)["U"], plain.model(alone.consensus)["U"])


def test_a_site_is_told_what_to_expect_of_a_feature_that_it_lacks() -> None:
    data = sites_lacking()
    truth = data[0][0].copy()
    data[0][0] = np.nan
    found = run(method_of(spec()), data).results[0].L[0]
    assert np.abs(found - truth).max() < 0.2 * truth.std()


def test_a_site_worked_in_parts_counts_once() -> None:
    method, own = method_of(spec()), ArrayColumns(sites_lacking(1, 1)[0])
    begin = method.begin()
    parts = Engine(1, memory_limit=64 * 8 * 12 * 5).site(method, own)
    told = parts.answer(begin).tensor
    np.testing.assert_array_equal(told, method.site(own).answer(begin).tensor)
    np.testing.assert_array_equal(told[:, 0], [0, 0, *[1] * 10])


def test_nothing_speaks_against_the_rounds_of_an_honest_run_that_counts() -> None:
    method = method_of(spec(scaling="robust"))
    sites = [method.site(ArrayColumns(own)) for own in sites_lacking(1)]
    consensus, before = method.begin(), None
    while consensus.outcome is None:
        assert method.plausible(consensus, before, 64) == ""
        assert method.difference(consensus, consensus.broadcast) == 0.0
        before = consensus
        consensus = method.advance(consensus, exchange(method, consensus, sites))
    assert collect(sites[0], consensus).L.shape == (12, 60)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"features": []}, "give features"),
        ({"missing": False}, "set missing = true"),
        ({"aggregation": "plain"}, "a cohort that stays"),
        ({"min_feature_sites": 1}, "min_feature_sites: it must be 2 or more"),
    ],
)
def test_a_spec_that_lets_sites_lack_features_says_what_else_it_needs(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        spec(**keys)
