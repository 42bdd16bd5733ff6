"""Log lines as JSON that every reader accepts."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
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


FAILING = """
import gc, sys, threading, warnings
from dcfpca import logs
from dcfpca.errors import BadInput
from dcfpca.text.command_runner import run_command
import typer

class Unraisable:
    def __del__(self):
        raise KeyError("in __del__")

app = typer.Typer(pretty_exceptions_enable=False)

@app.command()
def serve(ends: str):
    logs.setup_service("json", "info")
    warnings.warn("an old call")
    Unraisable()
    thread = threading.Thread(target=lambda: 1 / 0, name="worker")
    thread.start()
    thread.join()
    raise BadInput("the port is taken", "choose another") if ends == "told" else ValueError("a\\nbug")

run_command(app)
"""


@pytest.mark.parametrize(("ends", "code", "last"), [("told", 2, "ended"), ("bug", 1, "uncaught_exception")])
def test_a_service_that_logs_json_ends_with_json(ends: str, code: int, last: str) -> None:
    done = subprocess.run([sys.executable, "-c", FAILING, ends], capture_output=True, text=True, check=False)
    warned, unraisable, thread, end = (json.loads(line) for line in done.stderr.splitlines())
    assert (done.returncode, done.stdout, end["action"]) == (code, "", last)
    assert (warned["action"], unraisable["error"]) == ("library_message", "KeyError('in __del__')")
    assert (thread["where"], thread["error"]) == ("worker", "ZeroDivisionError('division by zero')")
    assert end["reason"] == "the port is taken" if ends == "told" else "ValueError: a\nbug" in end["traceback"]
