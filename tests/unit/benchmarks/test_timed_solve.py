"""`python -m benchmarks.solve` prints the figures it promises."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from benchmarks.solve import app

PROMISED = {
    "error",
    "relative_error_L",
    "rounds",
    "rounds_to",
    "rank",
    "seconds",
    "seconds_per_round",
    "gemm_fraction",
    "peak_bytes",
    "outcome",
}
SMALL = ["--rows", "80", "--columns", "90", "--rank", "4", "--participants", "3", "--json"]


@pytest.mark.parametrize("extra", [[], ["--max-rank", "8"], ["--outliers", "uniform", "--missing", "0.1"]])
def test_a_solve_reports_every_promised_figure_and_the_truth(extra: list[str]) -> None:
    done = CliRunner().invoke(app, [*SMALL, *extra])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert set(figures) >= PROMISED
    assert figures["rank"] == 4
    assert figures["relative_error_L"] <= 1e-8
    reached = figures["rounds_to"]
    assert reached["1e-6"] <= reached["1e-10"] <= figures["rounds"]
    assert figures["peak_bytes"] > 80 * 30 * 8


def test_the_gradient_method_is_measured_by_the_same_names() -> None:
    done = CliRunner().invoke(app, [*SMALL, "--method", "gradient", "--rounds", "5"])
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.stdout)) >= PROMISED
