"""Sums that are too large for every site to check each of them: the members in turn do, and others claim nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dcfpca.rpca.method import TensorMessage
from dcfpca.secagg.messages import members_in_turn
from dcfpca.wire.constants import SMALL_SUM
from tests.support.hostile.attacked_sites import (
    NAMES,
    RANK,
    Watch,
    attacked_sites,
    await_results,
    begun,
    sent_answers,
    with_broadcast,
)
from tests.support.hostile.lying_aggregator import LyingAggregator

ROWS = SMALL_SUM // (8 * RANK) + 1


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LyingAggregator]:
    """Four daemons with so many rows that a sum is large."""
    with attacked_sites(tmp_path_factory.mktemp("sites"), rows=ROWS) as made:
        yield made


def test_a_run_that_ends_with_what_nobody_in_turn_was_shown_is_not_called_checked(large: LyingAggregator) -> None:
    run = begun(large, played=2)
    tensor = np.linalg.qr(np.random.default_rng(1).standard_normal(run.consensus.broadcast.tensor.shape))[0]
    run.consensus = with_broadcast(run.consensus, TensorMessage(tensor, run.consensus.broadcast.scalars))
    opened = run.announcement()
    told = sorted(set(NAMES) - members_in_turn(NAMES, opened.ref.round))
    watch, after = Watch(run), run.open(dict.fromkeys(told, opened))
    answered = sent_answers(run, opened, watch, after, told)  # a site that happens to check refuses
    watch = Watch(run)
    run.finish(names=answered)
    await_results(run, watch, checked=False, names=answered)
