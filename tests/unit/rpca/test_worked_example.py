"""The stage that CONTRIBUTING shows is one: run as it stands there."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns, split
from dcfpca.rpca.method import Consensus, TensorMessage
from dcfpca.rpca.scaling import ENTRIES
from dcfpca.rpca.simulate import exchange, simulate
from dcfpca.spec import parse_spec
from tests.support.paths import ROOT


def shown() -> dict[str, Any]:
    """What the example defines."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "CONTRIBUTING.md", "exec"), names)
    return names


def test_the_stage_of_contributing_runs_and_changes_no_result() -> None:
    rng = np.random.default_rng(0)
    M = rng.standard_normal((14, 2)) @ rng.standard_normal((2, 120)) + 0.1 * rng.standard_normal((14, 120))
    M[rng.random(M.shape) < 0.1] = np.nan
    plain = method_of(parse_spec({"rows": 14, "rank": 2}))
    counting = shown()["counting_entries"](plain)
    seen: list[Consensus] = []
    with_it = simulate(counting, split(M, (50, 70)), lambda consensus, _: seen.append(consensus))
    alone = simulate(plain, split(M, (50, 70)))
    assert with_it.consensus.round == alone.consensus.round + 1
    np.testing.assert_array_equal(with_it.low_rank, alone.low_rank)
    np.testing.assert_array_equal(seen[0].memory[ENTRIES], np.count_nonzero(~np.isnan(M), axis=1))


def test_its_law_names_a_count_that_cannot_be() -> None:
    method = shown()["counting_entries"](method_of(parse_spec({"rows": 3, "rank": 1})))
    begin = method.begin()
    total = exchange(method, begin, [method.site(ArrayColumns(np.ones((3, 5))))])
    assert method.conserved(begin, total) == ""
    lie = replace(total, sums=TensorMessage(total.sums.tensor - 7.0, total.sums.scalars))
    assert method.conserved(begin, lie) == "a count of entries is negative"
