"""The command as a whole: exit codes, help, completion, and manners towards pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dcfpca.cli.main import command_tree, main
from dcfpca.version import __version__

CONNECTION = {"--aggregator", "--ca", "--cert", "--key", "--config"}


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(words)
    return int(stop.value.code or 0)


def leaves(node: object, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], object]]:
    commands = getattr(node, "commands", None)
    if not commands:
        return [(path, node)]
    return [leaf for name, child in commands.items() for leaf in leaves(child, (*path, name))]


COMMANDS = leaves(command_tree())


def options(command: object) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}  # type: ignore[attr-defined]


def test_the_version_is_said_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"dcfpca {__version__}\n"


@pytest.mark.parametrize("words", [("no-such",), ("run", "no-such"), ("run", "list", "--no-such"), ("run", "show")])
def test_misuse_exits_with_two_and_says_so_on_stderr(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert run(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err


def test_all_commands_of_the_contract_are_there() -> None:
    runs = {("run", verb) for verb in ("start", "list", "show", "watch", "abort", "resume", "export")}
    certs = {("certs", verb) for verb in ("init", "request", "approve", "issue", "renew", "revoke", "crl", "list")}
    others = {("demo",), ("doctor",), ("participants", "list"), ("participants", "revoke")}
    assert runs | certs | others <= {path for path, _ in COMMANDS}


@pytest.mark.parametrize(
    ("path", "command"), COMMANDS, ids=lambda value: "-".join(value) if type(value) is tuple else ""
)
def test_every_command_explains_itself_and_each_of_its_flags(path: tuple[str, ...], command: object) -> None:
    assert command.help  # type: ignore[attr-defined]
    silent = [one.name for one in command.params if one.param_type_name == "option" and not one.help]  # type: ignore[attr-defined]
    assert silent == []


@pytest.mark.parametrize(
    ("path", "command"), COMMANDS, ids=lambda value: "-".join(value) if type(value) is tuple else ""
)
def test_operators_commands_connect_alike_and_speak_json(path: tuple[str, ...], command: object) -> None:
    if path[0] in ("run", "participants"):
        assert options(command) >= CONNECTION
    if path != ("run", "report"):
        assert "--json" in options(command)


@pytest.mark.slow
def test_the_shell_can_complete_the_command() -> None:
    words = {"COMP_WORDS": "dcfpca run st", "COMP_CWORD": "2", "_DCFPCA_COMPLETE": "complete_bash"}
    command = [Path(sys.executable).with_name("dcfpca")]
    done = subprocess.run(command, env=os.environ | words, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["start"]


@pytest.mark.slow
def test_a_reader_that_has_had_enough_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "dcfpca.cli.main", "--help"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert "Traceback" not in done.stderr
