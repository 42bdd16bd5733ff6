import io
import json
import logging
import math
from typing import Literal

import pytest

from dcfpca import logs
from dcfpca.errors import Refused
from dcfpca.text import console


def test_json_is_one_document_and_turns_nan_into_null(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"change": math.nan, "list": [1.0, math.inf, {"x": -math.inf}], "text": "Σ"})
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"change": None, "list": [1.0, None, {"x": None}], "text": "Σ"}
    assert captured.err == ""


def test_an_error_is_said_on_stderr_word_for_word_even_with_square_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_error(Refused("the [policy] private is set", "ask [bold] the site"))
    captured = capsys.readouterr()
    assert captured.err == "error: the [policy] private is set\nhint: ask [bold] the site\n"
    assert captured.out == ""


def test_a_long_sentence_stays_on_one_line_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_error(Refused("word " * 100))
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_500_000, "1.5 MB"), (2e15, "2000.0 TB")]
)
def test_sizes_for_people(count: float, text: str) -> None:
    assert console.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (59.9, "59.9 s"), (60, "1 min 00 s"), (3599.6, "1 h 00 min"), (7260, "2 h 01 min")],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert console.span(seconds) == text


def test_a_moment_is_utc_and_zero_is_none() -> None:
    assert console.moment(0) is None
    assert console.moment(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"


def test_markup_in_a_cell_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    made = console.table("who", "#n")
    console.add_row(made, "[red]site[/]", None)
    console.show(made)
    assert "[red]site[/]" in capsys.readouterr().out


EVIL = "ok\x1b[2J\x1b]0;owned\x07 \x9b31m\r\u2028fake"


def test_nothing_that_a_peer_wrote_reaches_the_terminal_as_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    made = console.table("reason")
    console.add_row(made, EVIL)
    console.show(made)
    console.say(EVIL)
    console.result(EVIL)
    console.print_error(Refused(EVIL, EVIL))
    captured = capsys.readouterr()
    assert (captured.out + captured.err).replace("\n", "").isprintable()
    console.print_json({"reason": EVIL})
    text = capsys.readouterr().out
    assert json.loads(text) == {"reason": EVIL}
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("form", ["human", "json"])
def test_nor_does_a_log_line_hold_one(form: Literal["human", "json"], monkeypatch: pytest.MonkeyPatch) -> None:
    stream, logger = io.StringIO(), logging.getLogger("dcfpca")
    monkeypatch.setattr(logger, "handlers", list(logger.handlers))
    for name in ("propagate", "level"):
        monkeypatch.setattr(logger, name, getattr(logger, name))
    logs.setup(form, "info", stream)
    logs.log("participant_connected", participant="ann", software=EVIL, reasons=[EVIL])
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert line.rstrip("\n").isprintable()
    assert "ok" in line
