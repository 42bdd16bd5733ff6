"""Runs by a beginning or as `latest`, and nothing guessed where several could be meant."""

from __future__ import annotations

import pytest

from dcfpca.errors import Refused
from dcfpca.run_references import find_run

RUNS = ["20261116-60ba3ced", "20261116-61aa0000", "20261001-ffff0000"]


@pytest.mark.parametrize(
    ("text", "run"),
    [("latest", RUNS[0]), (RUNS[1], RUNS[1]), ("202610", RUNS[2]), ("60", RUNS[0]), ("ffff", RUNS[2]), ("no", "no")],
)
def test_a_run_is_found_by_what_people_write(text: str, run: str) -> None:
    assert find_run(text, RUNS) == run


def test_a_beginning_of_several_runs_is_refused_with_their_names() -> None:
    with pytest.raises(Refused, match="beginning of 2 runs: 20261116-60ba3ced, 20261116-61aa0000"):
        find_run("6", RUNS)


def test_without_runs_there_is_no_latest() -> None:
    with pytest.raises(Refused, match="no runs yet"):
        find_run("latest", [])
