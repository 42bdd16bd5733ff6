"""What deploy/ repeats of the software stays true: versions, dependencies, configurations, commands."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from aggregator.config import load_config as load_aggregator
from dcfpca.operator.connection import connect_settings
from dcfpca.version import __version__
from participant.config import load_config as load_participant
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy"
PACKAGES = ("dcfpca", "aggregator", "participant")
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


def test_the_wheel_is_built_with_locked_and_hashed_requirements_alone() -> None:
    text = (DEPLOY / "build-requirements.lock").read_text()
    locked = dict(re.findall(r"(?m)^([a-z0-9-]+)==(\S+) \\$", text))
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]:
        wanted = Requirement(line)
        assert wanted.specifier.contains(locked[canonicalize_name(wanted.name)]), line
    assert all("--hash=sha256:" in entry for entry in re.split(r"(?m)^(?=[a-z0-9-]+==)", text)[1:])
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert "--require-hashes -r deploy/build-requirements.lock" in dockerfile
    assert "pip wheel --no-deps --no-build-isolation" in dockerfile


def test_both_stages_of_the_image_have_the_base_that_the_build_names() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert re.findall(r"(?m)^FROM (\S+)", dockerfile) == ["${BASE}", "${BASE}"]


@pytest.mark.parametrize(
    ("base", "release", "passes", "says"),
    [
        ("", "", True, "named by tag"),
        ("", "1", False, "named by tag"),
        (f"python:3.11-slim-bookworm@sha256:{'0' * 64}", "1", True, "named by digest"),
        ("python:3.11-slim-bookworm@sha256:short", "1", False, "named by tag"),
    ],
)
def test_the_lint_says_whether_the_base_image_is_named_by_digest(
    base: str, release: str, passes: bool, says: str
) -> None:
    environment = {"PATH": os.environ["PATH"], "DCFPCA_BASE": base, "DCFPCA_RELEASE": release}
    script = "source deploy/verify/lint.sh; lint_base"
    done = subprocess.run(
        ["bash", "-c", script], check=False, cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert (done.returncode == 0, says in done.stdout) == (passes, True)


def _imported() -> set[str]:
    """The first names of everything that the software imports, wherever in a file."""
    trees = [ast.parse(path.read_text()) for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name.split(".")[0] for name in plain | {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)}}


@pytest.mark.slow
def test_whatever_is_imported_is_declared_and_not_only_there_by_luck() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for name, lines in project["optional-dependencies"].items() if name != "dev" for line in lines]
    declared = {canonicalize_name(Requirement(line).name) for line in [*project["dependencies"], *extras]}
    distributions = packages_distributions()
    for name in _imported() - set(sys.stdlib_module_names) - set(PACKAGES) - {""}:
        assert {canonicalize_name(one) for one in distributions.get(name, [name])} & declared, f"import {name}"


def test_the_locks_name_no_index() -> None:
    for name in ("requirements.lock", "build-requirements.lock"):
        assert "://" not in (DEPLOY / name).read_text()


def test_the_configs_of_the_composed_federation_are_accepted() -> None:
    aggregator = load_aggregator(DEPLOY / "demo" / "aggregator.toml")
    participant = load_participant(DEPLOY / "demo" / "participant.toml")
    operator = connect_settings({}, DEPLOY / "demo" / "operator.toml")
    assert participant.aggregator.address == str(operator.address)
    assert aggregator.server.listen.endswith(f":{operator.address.port}")
    assert participant.policy.private


def test_the_configs_of_the_composed_standby_are_accepted_and_name_both_aggregators() -> None:
    aggregator = load_aggregator(DEPLOY / "demo" / "aggregator-standby.toml")
    participant = load_participant(DEPLOY / "demo" / "participant-standby.toml")
    operator = connect_settings({}, DEPLOY / "demo" / "operator-standby.toml")
    assert aggregator.store.database_url().startswith("postgresql://")
    assert participant.aggregator.address == ", ".join(map(str, operator.addresses))
    compose = (DEPLOY / "compose.yaml").read_text()
    assert all(f"\n  {address.host}:\n" in compose for address in operator.addresses)


@pytest.mark.parametrize("role", ["aggregator", "participant"])
def test_units_and_charts_start_the_service_as_its_command_line_wants_it(role: str) -> None:
    command = rf"dcfpca-{role},? serve,? --config,? \S+{role}\.toml"
    for path in (f"systemd/dcfpca-{role}.service", f"helm/{role}/templates/statefulset.yaml"):
        assert re.search(command, (DEPLOY / path).read_text()), path


def test_every_dependency_of_the_product_is_pinned_by_a_range_and_has_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    product = text[text.index("dependencies = [") : text.index("dev = [")]
    named = [line for line in product.splitlines() if ">=" in line]
    assert len(named) > 15
    for line in named:
        assert re.search(r'>=[0-9.]+,<[0-9.]+"\]?,?\s+# \w', line), line
