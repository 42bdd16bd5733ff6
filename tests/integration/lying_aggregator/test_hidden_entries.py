"""Entries that a run hides, as a question: whoever knows which of a person's entries are hidden, counts whether they
are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray, TensorMessage
from dcfpca.rpca.refinement.closing_plan import REFINE, ClosingPlan
from dcfpca.rpca.refinement.hidden_entries import SECOND, column_keys, numpy_mark_hidden
from dcfpca.rpca.refinement.noise_scale import RESIDUAL_BINS
from tests.support.hostile.lying_aggregator import LyingAggregator
from tests.support.hostile.secure_play import FixedCohortPlay
from tests.support.services.federation import Federation

NAMES = ("ann", "bob", "cem")
ROWS, EACH, WIDTH = 40, 25, 2
SHARE, HIDDEN = 0.001, 3  # the least that a spec may hide, and how many entries of the person
SEEDS, BATCH = 4_000_000, 100_000


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[LyingAggregator]:
    """Three sites of 25 persons and 40 features."""
    rng = np.random.default_rng(7)
    with Federation(tmp_path) as federation, LyingAggregator(federation) as made:
        for name in NAMES:
            low = rng.normal(size=(ROWS, WIDTH)) @ rng.normal(size=(WIDTH, EACH))
            federation.add_site(name, low + rng.normal(size=(ROWS, EACH)))
        federation.start_sites(NAMES)
        yield made


def telling_seed(person: FloatArray) -> tuple[int, NDArray[np.intp]]:
    """A seed under which some entries of this record are hidden, as the published code draws them, and which."""
    key, most = column_keys(person[:, None])[0], np.uint64(SHARE * 2.0**64)
    for first in range(0, SEEDS, BATCH):
        seeds = np.arange(first, first + BATCH, dtype=np.uint64)
        hidden = np.empty((ROWS, BATCH), np.bool_)
        numpy_mark_hidden(key + seeds * SECOND, most, hidden)
        if (enough := np.flatnonzero(hidden.sum(axis=0) >= HIDDEN)).size:
            return int(seeds[enough[0]]), np.flatnonzero(hidden[:, enough[0]])
    raise AssertionError("no seed hides so many entries of the record")


def lacking_entries(liar: LyingAggregator, seed: int) -> FloatArray:
    """How many entries of each feature the sums of a run with this seed lack, of all that the sites have."""
    run = FixedCohortPlay(
        liar, NAMES, rank=WIDTH, rounds=1, closing_rounds=True, hidden_share=SHARE, seed=seed, tolerance=1e-9
    )
    assert all(answer.accept for answer in run.enrol().values())
    run.set_up()
    while run.consensus.stage != REFINE:
        run.play_round()
    plan, layout = ClosingPlan.of(run.consensus.broadcast), run.method.stage(REFINE).up
    sums = TensorMessage.unflatten(layout, run.play_round().numbers)
    counts = sums.tensor[:, WIDTH + 2 : WIDTH + 2 + 2 * RESIDUAL_BINS.count].sum(axis=1)
    return np.rint((1.0 - counts) * plan.columns)


@pytest.mark.slow
def test_no_seed_of_the_proposers_choice_tells_whether_a_known_record_is_among_the_columns(
    asked: LyingAggregator,
) -> None:
    found = 0
    for name in NAMES:
        seed, features = telling_seed(asked.federation.data[name][:, 11])
        found += bool((lacking_entries(asked, seed)[features] >= 1.0).all())
    # A hidden entry in each of three features is there by chance once in 3,000 runs.
    assert found <= 1
