"""The bench of rounds, run for real and small."""

from __future__ import annotations

import json

import pytest

from dcfpca.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.usefixtures("compiled_loops")]


def measured(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, float]:
    with pytest.raises(SystemExit) as stop:
        main(
            [
                "bench",
                "rounds",
                "--participants",
                "3",
                "--rows",
                "200",
                "--rank",
                "10",
                "--rounds",
                "3",
                "--json",
                *words,
            ]
        )
    assert not stop.value.code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("aggregation", ["secure", "plain"])
def test_rounds_are_measured_and_move_no_more_bytes_than_promised(
    capsys: pytest.CaptureFixture[str], aggregation: str
) -> None:
    found = measured(capsys, "--aggregation", aggregation, *(["--raw"] if aggregation == "plain" else []))
    assert 0 < found["min_round_s"] <= found["median_round_s"]
    assert found["aggregator_peak_bytes"] > 0
    tensor = 200 * 10 * 8
    assert 2 * tensor <= found["bytes_per_participant_round"] <= 1.1 * 2 * tensor + 4096 * 3
    assert ("raw_round_s" in found) == (aggregation == "plain")
