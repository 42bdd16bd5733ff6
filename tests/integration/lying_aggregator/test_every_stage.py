"""A liar that plays a whole run truly, and in every stage tries small lies about weak directions and small features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dcfpca.rpca.method import Consensus, TensorMessage
from dcfpca.rpca.refinement.closing_plan import CLOSING
from tests.support.hostile.attacked_sites import Watch, with_broadcast
from tests.support.hostile.count_cells import patients
from tests.support.hostile.lying_aggregator import LyingAggregator
from tests.support.hostile.secure_play import FixedCohortPlay
from tests.support.services.federation import Federation

NAMES = ("ann", "bob", "cem")
WIDTH = 4
ROWS = 30  # features: then every sum is small enough that all sites check it
STAGES = {"median", "deviation", "open", "fit", "refine", "validate", "shape", "covariance", "null", "check"}


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[LyingAggregator]:
    """Three sites of 150 persons, with features in units from 0.01 to 1000."""
    with Federation(tmp_path) as federation, LyingAggregator(federation) as made:
        for name, table in zip(NAMES, patients(), strict=True):
            federation.add_site(name, table[:ROWS])
        federation.start_sites(NAMES)
        yield made


def lies(told: Consensus) -> list[TensorMessage]:
    """What follows, but for one figure by a per cent: the smallest scale, a feature's noise, the weakest direction."""
    tensor, scalars = told.broadcast.tensor, told.broadcast.scalars
    if told.stage in ("median", "deviation"):
        return [_with(tensor, scalars, 0, 0, tensor[0, 0] + 1.0), _with(tensor, scalars, 1, 1, tensor[1, 1] + 1e-9)]
    small = scalars.copy()
    small[int(np.argmin(scalars[-ROWS:])) - ROWS] *= 1.01
    found = [TensorMessage(tensor, small)]
    if told.stage in CLOSING:
        column = WIDTH + 1  # the noise of every feature, after U and the centre
        row = int(np.argmin(tensor[:, column]))
        found.append(_with(tensor, scalars, row, column, 1.01 * tensor[row, column]))
    if told.stage == "fit":
        turned, away = tensor.copy(), np.linalg.qr(np.column_stack([tensor, np.ones(ROWS)]))[0][:, -1]
        turned[:, -1] = np.cos(0.01) * tensor[:, -1] + np.sin(0.01) * away
        found.append(TensorMessage(turned, scalars))
    return found


def _with(tensor: np.ndarray, scalars: np.ndarray, row: int, column: int, value: float) -> TensorMessage:
    other = tensor.copy()
    other[row, column] = value
    return TensorMessage(other, scalars)


@pytest.mark.slow
def test_a_lie_in_any_stage_is_refused_by_every_site(liar: LyingAggregator) -> None:
    run = FixedCohortPlay(
        liar, NAMES, rank=None, max_rank=WIDTH, scaling="robust", rounds=100, tolerance=1e-9, closing_rounds=True
    )
    assert all(answer.accept for answer in run.enrol().values())
    run.set_up()
    run.play_round()  # what is announced before any sum follows from the spec alone
    lied: dict[str, int] = {}
    while run.consensus.outcome is None:
        told = run.consensus
        fresh = told.stage not in lied
        for attempt, lie in enumerate(lies(told) if fresh else (), start=1):
            watch = Watch(run)
            run.open(run.announcement(with_broadcast(told, lie), attempt))
            kinds = {watch.refusal(name)["kind"] for name in NAMES}
            assert kinds <= {"WrongConsensus", "ImplausibleConsensus"}, told.stage
            lied[told.stage] = attempt
        opened = run.announcement(attempt=lied[told.stage] + 1 if fresh else 1)
        run.close(opened, run.total(opened, run.answers(opened, run.open(opened)).values()))
    assert set(lied) == STAGES
