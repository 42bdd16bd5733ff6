"""Features that differ from those of all sites, through real daemons: a person is asked, or the site leaves the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcfpca.rpca.method import FloatArray
from tests.support.services.federation import Federation

NAMES = ("alpha", "beta", "gamma")
FEATURES = ("age", "glucose", "weight", "pulse")
SPEC: dict[str, Any] = {
    "max_rank": 2,
    "features": FEATURES,
    "scaling": "auto",
    "participants": NAMES,
    "round_seconds": 600.0,
    "enrol_seconds": 300.0,
}


def _tables() -> dict[str, FloatArray]:
    """Three sites, the last of which has glucose in another unit."""
    rng = np.random.default_rng(3)
    centre, spread = np.array([50.0, 5.5, 75.0, 70.0])[:, None], np.array([15.0, 1.2, 14.0, 10.0])[:, None]
    tables = {name: centre + spread * rng.normal(size=(4, 60)) for name in NAMES}
    tables["gamma"][1] *= 18.02
    return tables


def _federation(root: Path, on_shift: str) -> Federation:
    made = Federation(root)
    made.start_aggregator()
    for name, table in _tables().items():
        policy = {"on_shift": on_shift} if name == "gamma" else {}
        made.add_site(name, table, tables={"data": {"feature_names": "names.txt"}}, **policy)
        (root / "sites" / name / "names.txt").write_text("\n".join(FEATURES))
        made.start_site(name).await_action("connected")
    return made


@pytest.mark.slow
def test_a_site_that_asks_holds_the_run_until_a_person_agrees_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    with _federation(tmp_path, "ask") as made:
        run = made.propose(**SPEC)
        site = made.processes["gamma"]
        site.await_action("approval_awaited", run=run)
        site.kill()
        site = made.start_site("gamma")
        site.await_action("approval_awaited", run=run)
        asked = made.site_command("gamma", "approve").stderr
        assert "waits because glucose: the median here lies" in asked
        assert "mg/dL" in asked
        assert str(made.operator.run(run)).count("glucose") == 1  # in the spec
        assert made.site_command("gamma", "approve", run, "--by", "Ada Byron").returncode == 0
        made.finish(run)
        notes = json.loads(made.result("gamma", run).manifest)["verdict"]["notes"]
        assert any(note.startswith("glucose: ") and "mg/dL" in note for note in notes), notes


@pytest.mark.slow
def test_a_site_that_refuses_leaves_before_its_columns_enter_a_fit_and_names_no_feature(tmp_path: Path) -> None:
    with _federation(tmp_path, "refuse") as made:
        run = made.propose(**SPEC)
        site = made.processes["gamma"]
        site.await_action("run_refused", run=run)
        said = made.follow(run)
        assert "gamma has withdrawn" in str(said)
        assert "its own log says why" in str(said)
        assert str(said).count("glucose") == 1  # in the spec
        sent = json.loads(made.site_command("gamma", "ledger", "--all", "--json").stdout)["entries"]
        assert "glucose" not in json.dumps(sent)
