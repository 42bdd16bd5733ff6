"""Aggregator and sites are upgraded one after the other while a run is open, and back: the answer is undisturbed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.services.federation import Federation, relative, running_federation
from tests.support.services.processes import Process

pytestmark = pytest.mark.slow

SITES = ("alpha", "beta", "gamma")
SPEC = {"method": "subspace", "rank": 2, "rounds": 40, "tolerance": 0.0, "participants": SITES, "closing_rounds": False}


def replace_software(federation: Federation, name: str, version: str) -> None:
    """Stop a service in order, and start this version of it on the same files."""
    federation.processes[name].stop()
    module, config = "participant.main", federation.root / "sites" / name / "participant.toml"
    if name == "agg":
        module, config = "aggregator.main", federation.aggregator_config()
    arguments = [module, version, "serve", "--config", str(config)]
    process = Process("tests.support.services.other_version", arguments, federation.root / f"{name}.log", fresh=True)
    federation.processes[name] = process
    process.await_action("serving" if name == "agg" else "connected")


@pytest.mark.timeout(180)
def test_an_upgrade_of_everybody_in_turn_and_the_way_back_change_nothing(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    data = {name: draw.standard_normal((24, 2)) @ draw.standard_normal((2, 20)) for name in SITES}
    with running_federation(tmp_path, data) as federation:
        run_id = federation.propose(**SPEC)
        federation.aggregator.await_action("consensus_reached", run=run_id, round=2)
        for version, order in (("0.3.0", ("agg", *SITES)), ("0.2.0", ("agg", "alpha"))):
            for name in order:
                replace_software(federation, name, version)
                assert federation.operator.run(run_id).status == "running"
                federation.aggregator.await_action("consensus_reached", run=run_id)
        view = federation.finish(run_id)
        assert [done.round for done in view.rounds] == list(range(view.round + 1))
        versions = {one.name: one.software for one in federation.operator.participants()}
        assert versions["beta"].endswith("0.3.0")
        for name, site in zip(SITES, federation.simulate(view, SITES).results, strict=True):
            assert relative(federation.result(name, run_id).L, site.L) <= 1e-10
