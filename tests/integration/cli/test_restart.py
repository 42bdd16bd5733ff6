"""`dcfpca run restart` with real daemons: after a run that ended, and after one that waited in vain for a site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcfpca.cli.main import main
from dcfpca.spec import parse_spec
from tests.support.services.federation import Federation, running_federation

pytestmark = pytest.mark.slow

SITES = ("alpha", "beta", "delta", "gamma")
SPEC: dict[str, Any] = {"rank": 2, "rounds": 12, "participants": SITES, "closing_rounds": False, "round_seconds": 60.0}


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    draw = np.random.default_rng(3)
    basis = draw.standard_normal((24, 2))
    data = {name: basis @ draw.standard_normal((2, 25)) for name in SITES}
    with running_federation(tmp_path, data) as made:
        yield made


def restart(federation: Federation, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    return command(federation, capsys, "restart", *words)


def command(federation: Federation, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    """What `dcfpca run WORDS` prints: the identifier of the new run, and what it says."""
    files = federation.files["op"]
    connection = ("--ca", str(files.ca), "--cert", str(files.certificate), "--key", str(files.key))
    capsys.readouterr()
    code: object = 0
    try:
        main(["run", *words, "--aggregator", federation.address, *connection])
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    assert not code, said.err
    return said.out.strip(), said.err


def test_without_a_site_the_others_approve_and_go_on_from_where_the_run_was(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    first = federation.finish(federation.propose(**SPEC))
    run, said = restart(federation, capsys, first.run_id, "--without", "delta")
    assert "the cohort shrank" in said
    assert "would single out delta" in said
    assert "a person at each of alpha, beta, gamma is asked to approve it" in said
    for name in ("alpha", "beta", "gamma"):
        federation.processes[name].await_action("approval_awaited", run=run)
        assert federation.operator.run(run).status == "enrolling"
        assert federation.site_command(name, "approve", run, "--by", "Ada Byron").returncode == 0
    view = federation.finish(run)
    assert [one.participant for one in view.enrolled] == ["alpha", "beta", "gamma"]
    assert parse_spec(view.spec).warm_start == first.run_id
    assert len(view.rounds) < len(first.rounds), "it starts from the subspace that was found"


def test_a_run_that_waited_in_vain_is_finished_and_goes_on_with_everybody_when_they_are_back(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    patient = SPEC | {"rounds": 500, "tolerance": 0.0, "patience": 1.0}
    run = federation.propose(**patient | {"round_seconds": 5.0})
    federation.aggregator.await_action("consensus_reached", run=run, round=4)
    federation.processes["beta"].kill()
    paused = federation.follow(run)
    assert paused.status == "paused"
    assert "waits for beta" in paused.reason
    federation.start_site("beta").await_action("connected")
    again, said = restart(federation, capsys, run)
    assert f"run {run} is finished with the consensus it has" in said
    assert "approve" not in said, "the cohort is the same"
    assert federation.operator.run(run).status == "finished"
    spec = parse_spec(federation.operator.run(again).spec)
    assert (spec.warm_start, spec.participants) == (run, SITES)
    federation.aggregator.await_action("consensus_reached", run=again, round=3)
    federation.operator.abort(again, "seen enough")
