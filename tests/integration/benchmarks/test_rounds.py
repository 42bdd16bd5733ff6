"""The bench of rounds, run for real and small."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from benchmarks.rounds.__main__ import app

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.usefixtures("compiled_loops")]


def measured(*words: str) -> dict[str, float]:
    shape = ["--participants", "3", "--rows", "200", "--rank", "10", "--rounds", "3"]
    done = CliRunner().invoke(app, [*shape, "--json", *words])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("aggregation", ["secure", "plain"])
def test_rounds_are_measured_and_move_no_more_bytes_than_promised(aggregation: str) -> None:
    found = measured("--aggregation", aggregation, *(["--raw"] if aggregation == "plain" else []))
    assert 0 < found["min_round_s"] <= found["median_round_s"]
    assert found["aggregator_peak_bytes"] > 0
    tensor = 200 * 10 * 8
    assert 2 * tensor <= found["bytes_per_participant_round"] <= 1.1 * 2 * tensor + 4096 * 3
    assert ("raw_round_s" in found) == (aggregation == "plain")
