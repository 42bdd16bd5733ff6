"""What the README tells people to type exists, and what it links to is there."""

from __future__ import annotations

import re
import shlex
import tomllib
from typing import Any

import pytest

from aggregator.config import Config as AggregatorConfig
from dcfpca.cli.main import command_tree
from dcfpca.spec import parse_spec
from participant.config import Config as ParticipantConfig
from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text()
COMMANDS = [line.split("#")[0].strip() for line in README.splitlines() if re.match(r"    dcfpca ", line)]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_exists_with_its_flags(command: str) -> None:
    node: Any = command_tree()
    words = shlex.split(command)[1:]
    while words and words[0] in getattr(node, "commands", {}):
        node = node.commands[words.pop(0)]
    assert not getattr(node, "commands", {}), f"{command} ends at a group"
    known = {name for parameter in node.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_readme_has_commands_to_check() -> None:
    assert len(COMMANDS) > 10


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)#]+)\)", README))
def test_a_link_of_the_readme_leads_somewhere(target: str) -> None:
    assert (ROOT / target).exists()


def test_every_toml_of_the_readme_is_what_it_says() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", README, flags=re.DOTALL)
    read = {block.splitlines()[0].removeprefix("# ").split(",")[0]: tomllib.loads(block) for block in blocks}
    assert set(read) == {"aggregator.toml", "participant.toml", "operator.toml", "spec.toml"}
    parse_spec(read["spec.toml"])
    AggregatorConfig.model_validate(read["aggregator.toml"])
    ParticipantConfig.model_validate(read["participant.toml"], context={"directory": "."})
    assert set(read["operator.toml"]) == {"aggregator", "ca", "cert", "key"}


def test_the_readme_begins_with_the_two_commands_that_the_makefile_has() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"    make {target} " in README
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
