"""What the README tells people to type exists, what it links to is there, and its number was measured."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
import typer

from dcfpca.cli.main import command_tree
from participant.main import app as participant_app
from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text()
COMMANDS = [line.split("#")[0].strip() for line in README.splitlines() if re.match(r"    dcfpca[- ]", line)]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_exists_with_its_flags(command: str) -> None:
    program, *words = shlex.split(command)
    node: Any = command_tree() if program == "dcfpca" else typer.main.get_command(participant_app)
    while words and words[0] in getattr(node, "commands", {}):
        node = node.commands[words.pop(0)]
    assert not getattr(node, "commands", {}), f"{command} ends at a group"
    known = {name for parameter in node.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_readme_has_commands_to_check() -> None:
    assert len(COMMANDS) >= 6


@pytest.mark.parametrize("target", re.findall(r'\]\((?!http)([^)#]+)(?:#[^)]*)?\)|(?:src|srcset)="([^"]+)"', README))
def test_a_link_of_the_readme_leads_somewhere(target: tuple[str, str]) -> None:
    assert (ROOT / (target[0] or target[1])).exists()


def test_the_readme_shows_the_two_commands_that_the_makefile_has() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"    make {target} " in README
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_the_number_of_the_readme_is_the_one_measured() -> None:
    measured = json.loads((ROOT / "benchmarks/results/cells.json").read_text())["summary"]
    assert f"**{100 * measured['errors']['precision']:.0f} %** of the values flagged in twelve real tables" in README
    assert measured["errors"]["runs"] % 12 == 0
    assert measured["null"]["flagged_mean"] < 1e-3
    assert "fewer than one value in a thousand is flagged" in README
