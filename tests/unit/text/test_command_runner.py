"""The exit codes that all three commands share, and what else `run_command` promises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from aggregator.main import main as aggregator_main
from aggregator.store.store import Store
from dcfpca.cli.main import main as operator_main
from dcfpca.errors import BadIdentity, BadInput, DcfpcaError, Refused, Unreachable, UnusableState
from dcfpca.text.command_runner import DONE, FAILED, MISUSED, exit_code, run_command
from participant.main import main as participant_main

Main = Callable[[list[str]], None]
MAINS = {"operator": operator_main, "aggregator": aggregator_main, "participant": participant_main}
every_main = pytest.mark.parametrize("main", MAINS.values(), ids=MAINS)
CONFIG_COMMANDS = {
    "operator": (operator_main, ["run", "list"]),
    "aggregator-serve": (aggregator_main, ["serve"]),
    "aggregator-check": (aggregator_main, ["check"]),
    "participant-serve": (participant_main, ["serve"]),
    "participant-check": (participant_main, ["check"]),
    "participant-ledger": (participant_main, ["ledger"]),
}


def code_of(main: Main, *words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    return int(stopped.value.code or 0)


def app_raising(error: Exception) -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def fail() -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadInput("x"), MISUSED),
        (UnusableState("x"), FAILED),
        (Refused("x"), FAILED),
        (BadIdentity("x"), FAILED),
        (Unreachable("x"), FAILED),
        (DcfpcaError("x"), FAILED),
    ],
)
def test_only_misuse_exits_with_two(error: DcfpcaError, code: int) -> None:
    assert exit_code(error) == code
    assert code_of(lambda words: run_command(app_raising(error), words)) == code


@every_main
def test_every_command_exits_with_zero_for_its_version_and_help(main: Main) -> None:
    assert code_of(main, "--version") == DONE
    assert code_of(main, "--help") == DONE


@every_main
def test_the_help_of_every_command_states_the_exit_codes(main: Main, capsys: pytest.CaptureFixture[str]) -> None:
    code_of(main, "--help")
    said = " ".join(capsys.readouterr().out.split())
    assert "0 done, 1 refused or failed, 2 misuse (command line, configuration, spec or data)" in said


@every_main
@pytest.mark.parametrize("words", [("no-such-command",), ("--no-such-option",)])
def test_every_command_exits_with_two_for_a_bad_command_line(main: Main, words: tuple[str, ...]) -> None:
    assert code_of(main, *words) == MISUSED


@pytest.mark.parametrize(("main", "words"), CONFIG_COMMANDS.values(), ids=CONFIG_COMMANDS)
@pytest.mark.parametrize("content", [None, "[server\n", "no_such_key = 1\n"], ids=["missing", "no-toml", "unknown-key"])
def test_every_command_exits_with_two_for_a_bad_configuration(
    main: Main, words: list[str], content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.toml"
    if content is not None:
        config.write_text(content)
    assert code_of(main, *words, "--config", str(config)) == MISUSED
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert "hint: " in captured.err
    assert captured.out == ""


def test_a_damaged_store_exits_with_one(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"not a database " * 400)
    with pytest.raises(UnusableState) as caught:
        Store(tmp_path / "store.db")
    assert exit_code(caught.value) == FAILED


def test_an_explained_exception_is_an_error_and_any_other_keeps_its_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def explain(error: Exception) -> DcfpcaError | None:
        return UnusableState("the disk is gone", "replace it") if isinstance(error, OSError) else None

    assert code_of(lambda words: run_command(app_raising(OSError("x")), words, explain)) == FAILED
    assert capsys.readouterr().err == "error: the disk is gone\nhint: replace it\n"
    with pytest.raises(ZeroDivisionError):
        run_command(app_raising(ZeroDivisionError("bug")), [], explain)
