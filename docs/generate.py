"""Generates configuration.md, cli.md and the drawn parts of architecture.md from the code. `make docs` runs it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import json
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import click
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from aggregator.config import Config as AggregatorConfig
from aggregator.main import app as aggregator_app
from dcfpca.cli.main import command_tree
from dcfpca.spec import RunSpec
from docs import packages, state_diagrams
from participant.config import Config as ParticipantConfig
from participant.main import app as participant_app

HERE = Path(__file__).parent
NOTE = "<!-- Written by docs/generate.py; change the descriptions in the code and run `make docs`. -->\n\n"
NOT_FOR_USERS = {"engine.kind"}

CONFIGURATION = """# Configuration reference

Four files, all TOML. Relative paths are relative to the file that contains them. An unknown key, or a value of the
wrong type or out of range, is an error that names the key. [deploy/config](../deploy/config) has a template of each
file with every key.

The operator's file (`--config`, or the environment variable `DCFPCA_CONFIG`) has four keys, at top level or under
`[operator]`: `aggregator` (HOST:PORT, or several with commas between), `ca`, `cert`, `key`. Flags of the same names
override it.
"""
CLI = """# Command reference

Three commands: `dcfpca` for operators and holders of the CA, `dcfpca-aggregator` for the service,
`dcfpca-participant` for a site. `--json` prints one JSON document on stdout and nothing else; messages go to
stderr. An error is one sentence after `error:`, with the remedy after `hint:`.

Exit codes: **0** done, **1** refused or failed, **2** misuse (command line, configuration, spec or data).

Commands of `dcfpca` that talk to the aggregator take `--aggregator HOST:PORT`, `--ca`, `--cert` and `--key`, or a file
with these keys given by `--config` or `DCFPCA_CONFIG`; they are not repeated below.
"""


DRAWN = {
    "packages": packages.packages,
    "imports": packages.imports,
    "contracts": packages.contracts,
    "run status": state_diagrams.run_status,
    "secure run": state_diagrams.secure_phases,
    "plain run": state_diagrams.plain_phases,
    "session": state_diagrams.site_session,
}


def architecture() -> str:
    """The text of architecture.md: as it is, with every part between two marks drawn anew."""

    def drawn(part: re.Match[str]) -> str:
        return f"<!-- drawn: {part[1]} -->\n\n{DRAWN[part[1]]()}\n<!-- end -->"

    text = (HERE / "architecture.md").read_text(encoding="utf-8")
    return re.sub(r"<!-- drawn: ([a-z ]+) -->\n.*?<!-- end -->", drawn, text, flags=re.DOTALL)


def configuration() -> str:
    """The text of configuration.md."""
    parts = [NOTE + CONFIGURATION]
    parts.append("\n## The aggregator: aggregator.toml\n" + "".join(_tables(AggregatorConfig)))
    parts.append("\n## A participant: participant.toml\n" + "".join(_tables(ParticipantConfig)))
    parts.append("\n## The spec of a run: spec.toml\n\n" + _spec())
    return "".join(parts)


def _tables(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        section = _model_in(field)
        assert section is not None, name
        rows = [_row(key, own) for key, own in section.model_fields.items() if f"{name}.{key}" not in NOT_FOR_USERS]
        doc = inspect.cleandoc(section.__doc__ or "").splitlines()[0]
        yield f"\n### [{name}]\n\n{doc}\n\n{_HEAD}" + "".join(rows)


def _spec() -> str:
    text = "What the operator proposes. Every site reviews and signs it; it cannot be changed afterwards.\n\n" + _HEAD
    sections = ""
    for key, field in RunSpec.model_fields.items():
        if dataclasses.is_dataclass(field.annotation):
            assert isinstance(field.annotation, type)
            sections += _settings(key, field.annotation)
        elif (section := _optional_model(field)) is not None:
            doc = inspect.cleandoc(section.__doc__ or "").splitlines()[0]
            rows = "".join(_row(name, own) for name, own in section.model_fields.items())
            sections += f"\n### [{key}]\n\n{doc}\n\n{_HEAD}{rows}"
        else:
            text += _row(key, field)
    return text + sections


_OF_EVERY_COMMAND = {"help", "install_completion", "show_completion"}
_HEAD = "| key | default | what it does |\n|---|---|---|\n"


def _row(key: str, field: FieldInfo) -> str:
    return f"| `{key}` | {_default(field)} | {_cell(field.description or '')}{_choices(field.annotation)} |\n"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return "–" if value is None or value is PydanticUndefined else f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def _choices(annotation: Any) -> str:
    words = [word for word in get_args(annotation) if isinstance(word, str | int) and not isinstance(word, bool)]
    return f" One of {', '.join(f'`{_toml(word)}`' for word in words)}." if words else ""


def _model_in(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _optional_model(field: FieldInfo) -> type[BaseModel] | None:
    kinds = (kind for kind in get_args(field.annotation) if isinstance(kind, type))
    return next((kind for kind in kinds if issubclass(kind, BaseModel)), None)


def _settings(name: str, settings: type[Any]) -> str:
    """The tunables of a method, described by the comments beside their fields."""
    comments = _comments(settings)
    rows = []
    for field in dataclasses.fields(settings):
        value = "–" if field.default is None else f"`{_toml(field.default)}`"
        rows.append(f"| `{field.name}` | {value} | {_cell(comments.get(field.name, ''))} |\n")
    return (
        f"\n### [{name}]\n\nTunables of the method `{name}`; none needs setting in ordinary use.\n\n{_HEAD}"
        + "".join(rows)
    )


def _comments(settings: type[Any]) -> dict[str, str]:
    source = textwrap.dedent(inspect.getsource(settings))
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    fields = [node for node in ast.parse(source).body[0].body if isinstance(node, ast.AnnAssign)]  # type: ignore[attr-defined]
    return {
        node.target.id: " ".join(
            comments[line] for line in range(node.lineno, (node.end_lineno or 0) + 1) if line in comments
        )
        for node in fields
        if isinstance(node.target, ast.Name)
    }


def commands() -> str:
    """The text of cli.md."""
    trees: dict[str, Any] = {  # click's commands, or those of the copy of click that newer typer carries
        "dcfpca": command_tree(),
        "dcfpca-aggregator": typer.main.get_command(aggregator_app),
        "dcfpca-participant": typer.main.get_command(participant_app),
    }
    parts = [NOTE + CLI]
    for name, tree in trees.items():
        parts.append(f"\n## {name}\n")
        parts += [_command(path, node) for path, node in leaves(name, tree)]
    return "".join(parts)


def leaves(path: str, node: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Every command that is not a group, with its full name."""
    below = getattr(node, "commands", None)
    if below is None:
        yield path, node
        return
    for name, child in sorted(below.items()):
        if not child.hidden:
            yield from leaves(f"{path} {name}", child)


def _command(path: str, node: click.Command) -> str:
    arguments = [p for p in node.params if p.param_type_name == "argument"]
    words = [f"[{_name(p)}]" if not p.required else _name(p) for p in arguments]
    usage = " ".join([path, *words, "[OPTIONS]"])
    about = " ".join(inspect.cleandoc(node.help or "").split())
    rows = [_parameter(p) for p in node.params if _is_shown(p)]
    table = "\n| | |\n|---|---|\n" + "".join(rows) if rows else ""
    return f"\n### {path}\n\n{about}\n\n    {usage}\n{table}"


def _is_shown(parameter: click.Parameter) -> bool:
    if getattr(parameter, "rich_help_panel", None) == "Connection":
        return False
    return not getattr(parameter, "hidden", False) and parameter.name not in (
        "help",
        "install_completion",
        "show_completion",
    )


def _name(parameter: click.Parameter) -> str:
    return parameter.metavar or (parameter.name or "").upper()


def _parameter(parameter: click.Parameter) -> str:
    if parameter.param_type_name == "argument":
        return f"| `{_name(parameter)}` | {_cell(getattr(parameter, 'help', '') or '')} |\n"
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    return f"| {names} | {_cell(getattr(parameter, 'help', '') or '')}{_stated(parameter)} |\n"


def _stated(parameter: click.Parameter) -> str:
    if parameter.required:
        return " Required."
    default = parameter.default
    if callable(default) or default in (None, "", False, ()) or str(default).startswith("Sentinel"):
        return ""
    return f" Default: `{'true' if default is True else default}`."


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def main() -> None:
    """Write all three files."""
    (HERE / "configuration.md").write_text(configuration(), encoding="utf-8")
    (HERE / "cli.md").write_text(commands(), encoding="utf-8")
    (HERE / "architecture.md").write_text(architecture(), encoding="utf-8")
    sys.stdout.write("docs/configuration.md, docs/cli.md and docs/architecture.md are written\n")


if __name__ == "__main__":
    main()
