"""Four daemons, one of which lacks a feature: it takes part if enough others have it, and else the run names it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.services.federation import Federation, relative

pytestmark = pytest.mark.slow
NAMES = ("a", "b", "c", "d")
FEATURES = tuple(f"f{k}" for k in range(15))
KEYS = {"rank": 2, "rounds": 6, "participants": NAMES, "round_seconds": 30, "missing_features": "allow"}


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """Site d has no f0; `rare` is at a and b alone."""
    rng = np.random.default_rng(2)
    U = rng.normal(size=(16, 2))
    with Federation(tmp_path_factory.mktemp("federation")) as made:
        made.start_aggregator()
        for name in NAMES:
            M = U @ rng.normal(size=(2, 40)) + np.where(rng.random((16, 40)) < 0.05, 30.0, 0.0)
            own = slice(0, 16 if name in "ab" else 15) if name != "d" else slice(1, 15)
            made.add_site(name, M[own], tables={"data": {"feature_names": "names.txt"}}, min_cohort=3)
            (made.root / "sites" / name / "names.txt").write_text("\n".join((*FEATURES, "rare")[own]))
            made.data[name] = M[:15]
        made.data["d"][0] = np.nan
        made.start_sites(NAMES)
        yield made


def test_a_site_that_lacks_a_feature_takes_part_with_it_unobserved(federation: Federation) -> None:
    view = federation.run(features=FEATURES, **KEYS)
    alone = federation.simulate(view, NAMES)
    for name, mine in zip(NAMES, alone.results, strict=True):
        assert relative(federation.result(name, view.run_id).L, mine.L) <= 1e-6  # single precision in early rounds


def test_a_feature_that_too_few_sites_have_ends_the_run_and_is_named(federation: Federation) -> None:
    view = federation.follow(federation.propose(features=(*FEATURES, "rare"), **KEYS))
    assert view.status == "failed"
    assert "fewer than 3 sites have any entry of rare" in view.reason
    assert view.round == 0
