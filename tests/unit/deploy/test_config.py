"""The annotated reference configs say what the models say: every key, every default, nothing else."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from aggregator.config import Config as AggregatorConfig
from aggregator.config import load_config as load_aggregator
from dcfpca.operator.connection import connect_settings
from dcfpca.spec import RunSpec, parse_spec
from participant.config import Config as ParticipantConfig
from participant.config import load_config as load_participant
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy"
CONFIG = DEPLOY / "config"
MODELS: dict[str, type[BaseModel]] = {
    "aggregator.toml": AggregatorConfig,
    "participant.toml": ParticipantConfig,
    "spec.toml": RunSpec,
}
# Keys without a default in the file: there is none, or it stands for "not given", which TOML cannot say.
UNSAID = {
    "spec.toml": {"rank", "privacy"},
    "participant.toml": {"policy.max_epsilon", "policy.max_epsilon_year"},
}
# Defaults that are not the example's: a path as the reference has to show one, and what only measurements use.
SHOWN_ONLY = {"store.url_file", "telemetry.ready_file", "identity.crl"} | {
    f"data.{key}" for key in ("feature_names", "persons", "categories", "dates")
}
NOT_FOR_USERS: set[str] = set()


def _with_defaults(name: str) -> str:
    """The file with the default of every key uncommented."""
    return re.sub(r"(?m)^# (?=[a-z0-9_]+ = )", "", (CONFIG / name).read_text())


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _keys(kind, f"{prefix}{name}.")
        elif not (isinstance(kind, type) and is_dataclass(kind)):
            yield f"{prefix}{name}", field


def _lookup(tables: dict[str, Any], key: str) -> Any:
    for part in key.split("."):
        tables = tables[part]
    return tables


@pytest.mark.parametrize("load", [load_aggregator, load_participant])
def test_the_reference_is_accepted_by_the_service_itself(load: Any) -> None:
    load(CONFIG / ("aggregator.toml" if load is load_aggregator else "participant.toml"))


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_with_its_defaults_spelled_out_is_accepted(name: str) -> None:
    MODELS[name].model_validate(tomllib.loads(_with_defaults(name)))


@pytest.mark.parametrize("name", MODELS)
def test_every_key_is_shown_and_every_shown_default_is_the_default(name: str) -> None:
    spelled, given = tomllib.loads(_with_defaults(name)), tomllib.loads((CONFIG / name).read_text())
    for key, field in _keys(MODELS[name]):
        if key in UNSAID.get(name, set()) | NOT_FOR_USERS:
            continue
        try:
            shown = _lookup(spelled, key)
        except KeyError:
            pytest.fail(f"deploy/config/{name} does not show {key}; add it with its meaning and default")
        try:
            _lookup(given, key)
        except KeyError:
            default = list(field.default) if isinstance(field.default, tuple) else field.default
            assert key in SHOWN_ONLY or key.startswith("rules.") or shown == default, f"{key} in deploy/config/{name}"


def test_the_reference_spec_is_a_spec() -> None:
    assert parse_spec(tomllib.loads((CONFIG / "spec.toml").read_text())).width == 20


def test_the_operators_reference_has_the_keys_of_the_connection() -> None:
    settings = connect_settings({}, CONFIG / "operator.toml")
    assert settings.files.key == CONFIG / "operator.key"
