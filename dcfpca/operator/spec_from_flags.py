"""The spec to propose, from a spec file and flags that override it, and what error to expect of a private run."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dcfpca.errors import BadInput, Refused
from dcfpca.methods import schedule_of
from dcfpca.rpca.private.schedule import expectation_text, predicted_error, prediction_text
from dcfpca.spec import RunSpec, parse_spec, parse_spec_toml
from dcfpca.v1 import admin_pb2 as pb

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


def expected_error(proposed: bytes, columns: float | None, known: Sequence[pb.ParticipantView]) -> str:
    """One sentence on the error to expect with about so many columns in all; Refused if it is above `max_error`.

    Sites do not state their numbers of columns: where the operator does not know the order of magnitude either, the
    noisy count that opens the run decides.
    """
    spec = parse_spec(proposed)
    privacy, rows = spec.privacy, spec.rows or _reported_rows(known)
    assert privacy is not None
    if columns is None or not rows:
        what = "--columns" if columns is None else "--rows"
        return (
            f"at ε = {privacy.epsilon:g} the error depends on how many columns the sites have: give {what}"
            " to see it first; else the run ends after its opening if its noisy count predicts sin θ above"
            f" {privacy.max_error:g} (privacy.max_error)"
        )
    spec = spec if spec.rows else spec.model_copy(update={"rows": rows})
    schedule, surplus = schedule_of(privacy), _surplus(spec, privacy.conspirators, known)
    if (error := predicted_error(rows, spec.width, columns, schedule, surplus)) > privacy.max_error:
        hint = "raise epsilon, lower the rank, or raise max_error in [privacy] if such a result is of use"
        expected = expectation_text(privacy.epsilon, columns, error)
        raise Refused(f"{expected}, above the {privacy.max_error:g} that the spec allows (privacy.max_error)", hint)
    return prediction_text(privacy.epsilon, columns, error, spec.width)


def _reported_rows(known: Sequence[pb.ParticipantView]) -> int:
    """The number of rows that most connected participants have; 0 if none says."""
    counted = Counter(one.rows for one in known if one.state == "connected" and one.rows)
    return counted.most_common(1)[0][0] if counted else 0


def _surplus(spec: RunSpec, conspirators: int, known: Sequence[pb.ParticipantView]) -> float:
    """The variance of all sites' noise over that of the honest ones."""
    sites = len(spec.participants) or sum(one.state == "connected" for one in known)
    return sites / max(sites - conspirators, 1) if sites else 1.0
