"""What the aggregator makes of an opened sum: the next consensus, or a sentence that says why there is none."""

from __future__ import annotations

import numpy as np
import pytest

from aggregator.sums import UnusableSum, advanced
from dcfpca.rpca.column_blocks import split
from dcfpca.rpca.method import FloatArray, TensorMessage, Total
from dcfpca.rpca.simulate import exchange
from dcfpca.spec import parse_spec
from dcfpca.terms import Terms

TERMS = Terms.of(parse_spec({"rows": 10, "rank": 2}))


def total(vector: FloatArray) -> Total:
    return Total(TensorMessage.unflatten(TERMS.method.stage("open").up, vector), 2)


def test_a_sum_that_breaks_a_law_is_not_used_and_the_sentence_says_which() -> None:
    method = TERMS.method
    sites = [method.site(own) for own in split(np.random.default_rng(0).standard_normal((10, 40)), (15, 25))]
    told = method.begin()
    vector = exchange(method, told, sites).sums.flat()
    assert advanced(TERMS, told, total(vector)).stage == "fit"
    vector[7] += 0.5
    with pytest.raises(
        UnusableSum, match="round 0 cannot be true: a count of columns or entries is not a whole number"
    ):
        advanced(TERMS, told, total(vector))
    vector[7] = np.nan
    with pytest.raises(UnusableSum, match="not finite"):
        advanced(TERMS, told, total(vector))
