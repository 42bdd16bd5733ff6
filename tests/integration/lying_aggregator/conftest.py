"""Four daemons and a liar, started once for each module: every test has runs of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.hostile.attacked_sites import attacked_sites
from tests.support.hostile.lying_aggregator import LyingAggregator


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LyingAggregator]:
    """The sites allow both kinds of run."""
    with attacked_sites(tmp_path_factory.mktemp("sites")) as made:
        yield made
