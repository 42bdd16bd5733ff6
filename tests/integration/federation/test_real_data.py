"""Two real data sets, where they are at hand: cars on a motorway, and the metrics of twelve servers."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.real_data.datasets import Dataset, asd, highway
from benchmarks.real_data.detection_scores import area_under_curve, best_f1
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.simulate import simulate
from tests.support.paths import SHARED

DATA = SHARED / "data"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.exists(), reason=f"the data sets of benchmarks/real_data are not in {DATA}"),
]


def scores(dataset: Dataset, *sites: FloatArray, min_cell: int = 5) -> FloatArray:
    spec = dataset.spec().model_copy(update={"min_cell": min_cell})
    run = simulate(method_of(spec), [ArrayColumns(own) for own in sites])
    return dataset.scores(run.low_rank)


def test_six_sites_tell_cars_from_the_road() -> None:
    dataset = highway(DATA)
    found = scores(dataset, *dataset.sites)
    assert best_f1(found[dataset.judged], dataset.labels[dataset.judged]) >= 0.87


def test_twelve_servers_score_every_step_as_if_their_data_were_pooled() -> None:
    dataset = asd(DATA)
    exact = scores(dataset, *dataset.sites, min_cell=1)
    np.testing.assert_allclose(exact, scores(dataset, dataset.pooled, min_cell=1), rtol=0, atol=1e-6)
    # Sites that merge small counts merge others than one site with all columns would: that is all that differs.
    federated = scores(dataset, *dataset.sites)
    np.testing.assert_allclose(federated, exact, rtol=0.02, atol=0)
    assert np.mean(np.abs(federated - exact) > 0.01 * exact) < 1e-3
    assert area_under_curve(federated, dataset.labels) > 0.65
