"""The aggregator's memory does not follow the number of participants; `benchmarks.many_participants` has more."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.many_participants import measure


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_memory_beyond_the_connections_is_that_of_a_few_participants(tmp_path: Path) -> None:
    few = measure(tmp_path / "few", 10, rounds=2, rows=1000, rank=10, processes=1)
    many = measure(tmp_path / "many", 80, rounds=2, rows=1000, rank=10, processes=1)
    assert many.beyond_connections_kib <= 1.5 * few.peak_kib
