"""Builds the spec to propose from a spec file and command-line flags; flags override the file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dcfpca.errors import BadInput
from dcfpca.spec import RunSpec, parse_spec, parse_spec_toml

_RANKS = ("rank", "max_rank")


def spec_from_flags(path: Path | None, flags: Mapping[str, Any], settings: Sequence[str]) -> RunSpec:
    """The validated spec. A flag that was not given is None; `settings` have the form key=value."""
    if all(flags.get(key) is not None for key in _RANKS):
        raise BadInput("--rank and --max-rank contradict each other", "give one of them, or neither: the rank is found")
    keys = _read(path) if path else {}
    for key, value in flags.items():
        if value is not None:
            _put(keys, key, value)
    for setting in settings:
        _put(keys, *_split(setting))
    return parse_spec(keys)


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except OSError as error:
        raise BadInput(f"the spec {path} cannot be read: {error.strerror}", "check the path") from None
    except UnicodeDecodeError:
        raise BadInput(f"the spec {path} is not text", "a spec is a TOML file") from None
    return parse_spec_toml(text, str(path))


def _split(setting: str) -> tuple[str, Any]:
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise BadInput(f"--set {setting} is not of the form key=value", "write --set round_seconds=120")
    return key.strip(), _value(text.strip())


def _value(text: str) -> Any:
    """A TOML value; anything else is taken as a string, so that no quotes are needed in the shell."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(keys: dict[str, Any], dotted: str, value: Any) -> None:
    """Set a key, also inside a table such as subspace.passes; rank and max_rank replace each other."""
    if dotted in _RANKS:
        for other in _RANKS:
            keys.pop(other, None)
    *tables, last = dotted.split(".")
    inner = keys
    for name in tables:
        inner = inner.setdefault(name, {})
        if not isinstance(inner, dict):
            raise BadInput(
                f"{dotted}: {name} is not a table", "the tables of a spec are subspace, gradient and privacy"
            )
    inner[last] = value
