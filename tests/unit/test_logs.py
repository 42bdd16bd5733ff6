"""Log lines as JSON that every reader accepts."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from dcfpca import logs


def refuse(word: str) -> Any:
    raise AssertionError(f"{word} is no JSON")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_cannot_write_is_null(value: float) -> None:
    told = io.StringIO()
    logs.setup("json", "info", told)
    logs.log("consensus_reached", change=value, rank=2, reason="line\nbreak")
    line = json.loads(told.getvalue(), parse_constant=refuse)
    assert (line["change"], line["rank"]) == (None, 2)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    told = io.StringIO()
    before = list(logging.getLogger().handlers)
    logs.setup("json", "info", told)
    yield told
    logging.getLogger().handlers[:] = before
    logging.captureWarnings(False)


def test_what_libraries_log_comes_as_json_lines_of_ours(lines: io.StringIO) -> None:
    logging.getLogger("grpc._cython.cygrpc").error("GOAWAY\nreceived from %s", "peer")
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("asyncio").exception("Task exception was never retrieved")
    logging.getLogger("asyncio").info("using selector")
    logging.getLogger("py.warnings").warning("an old call")  # as `captureWarnings` logs them
    first, second, third = (json.loads(line) for line in lines.getvalue().splitlines())
    told = {"action": "library_message", "level": "error", "library": "grpc._cython.cygrpc"}
    assert first.items() >= (told | {"message": "GOAWAY\nreceived from peer"}).items()
    assert second["error"] == "ValueError('broken')"
    assert (third["level"], "an old call" in third["message"]) == ("warning", True)


def test_a_second_setup_replaces_the_first(lines: io.StringIO) -> None:
    later = io.StringIO()
    logs.setup("json", "info", later)
    logging.getLogger("grpc").error("lost")
    assert (lines.getvalue(), later.getvalue().count("\n")) == ("", 1)
