"""A site whose columns are worked on in parts has one own view, that of all its columns."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore

import numpy as np
import pytest

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.simulate import SiteResult, collect, exchange
from dcfpca.rpca.stage import Site
from dcfpca.spec import parse_spec
from participant.engine.partitioned_site import PartitionedSite, PartWorkers

METHOD = method_of(parse_spec({"rows": 15}))


def _result(first: Site, others: list[FloatArray]) -> SiteResult:
    sites = [first, *(METHOD.site(ArrayColumns(M)) for M in others)]
    consensus = METHOD.begin()
    while consensus.outcome is None:
        consensus = METHOD.advance(consensus, exchange(METHOD, consensus, sites))
    return collect(first, consensus)


@pytest.mark.slow
def test_flags_do_not_depend_on_the_parts() -> None:
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(15, 2))
    first, *others = [factors @ rng.normal(size=(2, n)) + 0.3 * rng.normal(size=(15, n)) for n in (200, 150, 180)]
    first += 2.0 * np.arange(15)[:, None]  # a site of its own centres
    first[rng.random(first.shape) < 0.02] += 8.0
    with ThreadPoolExecutor(2) as pool:
        parts = PartitionedSite(METHOD, ArrayColumns(first), 64, PartWorkers(pool, Semaphore(2), 2, None))
        one, other = _result(METHOD.site(ArrayColumns(first)), others), _result(parts, others)
    assert one.S.nnz > 30
    np.testing.assert_array_equal(one.S.toarray() != 0.0, other.S.toarray() != 0.0)
    assert np.isclose(one.certificate["error_ratio"], other.certificate["error_ratio"])
