"""`dcfpca run start` with real daemons while a member of the last run is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integration.cli.test_restart import SITES, command
from tests.support.services.federation import Federation, running_federation

pytestmark = pytest.mark.slow

SPEC: dict[str, Any] = {"rank": 2, "rounds": 6, "closing_rounds": False, "round_seconds": 60.0}
FLAGS = ("--rank", "2", "--rounds", "6", "--set", "closing_rounds=false")


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    draw = np.random.default_rng(3)
    basis = draw.standard_normal((24, 2))
    with running_federation(tmp_path, {name: basis @ draw.standard_normal((2, 25)) for name in SITES}) as made:
        yield made


def test_a_run_started_while_a_member_is_away_waits_for_it_says_so_and_finishes_with_everybody(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    first = federation.run(**SPEC)
    federation.processes["delta"].kill()
    run, said = command(federation, capsys, "start", *FLAGS)
    assert (
        f"waiting for delta, for at most 30 s: the others would refuse to sum without the members of run {first.run_id}"
        in said
    )
    for name in ("alpha", "beta", "gamma"):
        federation.aggregator.await_action("participant_enrolled", run=run, participant=name)
    view = federation.operator.run(run)
    assert (view.status, list(view.awaited)) == ("enrolling", ["delta"])
    federation.start_site("delta")
    assert [one.participant for one in federation.finish(run).enrolled] == list(SITES)


def test_before_a_run_is_proposed_that_the_sites_would_refuse_it_says_whom_it_would_single_out(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    first = federation.run(**SPEC)
    _, said = command(federation, capsys, "start", *FLAGS, "--participants", "alpha,beta,gamma", "--enrol-seconds", "1")
    assert f"the sums of this run and of run {first.run_id} together would single out delta" in said
    assert "a person at each of alpha, beta, gamma is asked to approve it:" in said
