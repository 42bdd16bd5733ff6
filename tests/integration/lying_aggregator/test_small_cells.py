"""What the sums of a whole run tell about single persons, to an aggregator that only reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dcfpca.rpca.method import TensorMessage
from tests.support.hostile.count_cells import few_in_a_cell, patients
from tests.support.hostile.lying_aggregator import LyingAggregator
from tests.support.hostile.secure_play import FixedCohortPlay
from tests.support.services.federation import Federation

NAMES = ("ann", "bob", "cem")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[LyingAggregator]:
    """Three sites of 150 persons and 40 features with the default `min_cell`."""
    with Federation(tmp_path) as federation, LyingAggregator(federation) as made:
        for name, table in zip(NAMES, patients(), strict=True):
            federation.add_site(name, table)
        federation.start_sites(NAMES)
        yield made


@pytest.mark.slow
def test_no_sum_of_a_whole_run_has_a_cell_with_fewer_than_five_entries(reader: LyingAggregator) -> None:
    run = FixedCohortPlay(
        reader, NAMES, rank=None, max_rank=4, scaling="robust", rounds=100, tolerance=1e-9, closing_rounds=True
    )
    assert all(answer.accept for answer in run.enrol().values())
    run.set_up()
    played: dict[str, int] = {}
    while run.consensus.outcome is None:
        told = run.consensus
        sums = TensorMessage.unflatten(run.method.stage(told.stage).up, run.play_round().numbers)
        played[told.stage] = played.get(told.stage, 0) + few_in_a_cell(run.method, told, sums, least=5)
    assert played == dict.fromkeys(played, 0)
    assert {"median", "deviation", "open", "fit", "refine", "validate", "shape", "covariance", "null"} <= set(played)


def test_a_spec_that_would_tell_smaller_cells_is_refused(reader: LyingAggregator) -> None:
    for min_cell in (1, 4, 6):
        (answer, *_) = FixedCohortPlay(reader, NAMES, min_cell=min_cell).enrol().values()
        assert not answer.accept
        assert "set min_cell = 5" in answer.reasons[0]
