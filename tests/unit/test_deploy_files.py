"""What deploy/ repeats of the software stays true: versions, dependencies, configurations, commands."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from aggregator.config import load_config as load_aggregator
from dcfpca.cli.connection import connect_settings
from dcfpca.version import __version__
from participant.config import load_config as load_participant

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHARTS = sorted((DEPLOY / "helm").glob("*/Chart.yaml"))


@pytest.mark.parametrize("chart", CHARTS, ids=lambda path: path.parent.name)
def test_a_chart_has_the_version_of_the_software(chart: Path) -> None:
    stated = dict(re.findall(r"(?m)^(version|appVersion): (\S+)$", chart.read_text()))
    assert stated == {"version": __version__, "appVersion": __version__}


def test_both_charts_share_their_helpers_word_for_word() -> None:
    for name in ("_helpers.tpl", "poddisruptionbudget.yaml", "servicemonitor.yaml"):
        assert len({(chart.parent / "templates" / name).read_text() for chart in CHARTS}) == 1, name


def test_the_lock_satisfies_every_dependency_and_hashes_every_file() -> None:
    text = (DEPLOY / "requirements.lock").read_text()
    locked = dict(re.findall(r"(?m)^([a-z0-9-]+)==(\S+) \\$", text))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for line in project["dependencies"]:
        wanted = Requirement(line)
        version = locked.get(canonicalize_name(wanted.name))
        assert version, f"{wanted.name} is not in deploy/requirements.lock; write it anew with deploy/lock.py"
        assert wanted.specifier.contains(version), f"{wanted} is not met by {version} in deploy/requirements.lock"
    assert all("--hash=sha256:" in entry for entry in re.split(r"(?m)^(?=[a-z0-9-]+==)", text)[1:])


def test_the_lock_names_no_index() -> None:
    assert "://" not in (DEPLOY / "requirements.lock").read_text()


def test_the_configs_of_the_composed_federation_are_accepted() -> None:
    aggregator = load_aggregator(DEPLOY / "demo" / "aggregator.toml")
    participant = load_participant(DEPLOY / "demo" / "participant.toml")
    operator = connect_settings({}, DEPLOY / "demo" / "operator.toml")
    assert participant.aggregator.address == str(operator.address)
    assert aggregator.server.listen.endswith(f":{operator.address.port}")
    assert participant.policy.private


@pytest.mark.parametrize("role", ["aggregator", "participant"])
def test_units_and_charts_start_the_service_as_its_command_line_wants_it(role: str) -> None:
    command = rf"dcfpca-{role},? serve,? --config,? \S+{role}\.toml"
    for path in (f"systemd/dcfpca-{role}.service", f"helm/{role}/templates/statefulset.yaml"):
        assert re.search(command, (DEPLOY / path).read_text()), path
