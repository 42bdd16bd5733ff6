"""The documentation says what the code does: generated parts are fresh, and nothing is left out or made up."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from participant.telemetry import Telemetry as SiteTelemetry
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
GENERATE = runpy.run_path(str(DOCS / "generate.py"))
PAGES = sorted(DOCS.glob("*.md"))
FOR_PEOPLE_WHO_JOIN = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")]
# What in backquotes begins with one of these is a path in the repository.
PATH = re.compile(
    r"`((?:aggregator|benchmarks|certs|dcfpca|deploy|docs|examples|participant|protos|tests)(?:/[\w.-]+)+)"
)
SUFFIXES = r"(_total|_sum|_count|_bucket)$"


@pytest.mark.parametrize(
    ("name", "make"),
    [("configuration.md", "configuration"), ("cli.md", "commands"), ("architecture.md", "architecture")],
)
def test_a_generated_page_is_fresh(name: str, make: str) -> None:
    assert (DOCS / name).read_text() == GENERATE[make](), "run `make docs`"


def test_every_key_and_every_tunable_is_described() -> None:
    undescribed = re.findall(r"^\| `([a-z_]+)` \| .* \|  \|$", (DOCS / "configuration.md").read_text(), re.MULTILINE)
    assert undescribed == []


def test_every_command_says_what_it_does() -> None:
    text = (DOCS / "cli.md").read_text()
    commands = re.findall(r"^### (dcfpca\S*(?: \S+)+)\n\n(.*)$", text, re.MULTILINE)
    assert len(commands) > 20
    assert [name for name, about in commands if not about.strip()] == []


@pytest.mark.parametrize("page", [*PAGES, *FOR_PEOPLE_WHO_JOIN], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", [*PAGES, *FOR_PEOPLE_WHO_JOIN], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_in_a_page_exists(page: Path) -> None:
    named = set(PATH.findall(page.read_text()))
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


@pytest.mark.parametrize("page", [*PAGES, *FOR_PEOPLE_WHO_JOIN], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    """Also where only the end of its path is written, as `subspace/fit.py`."""
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", page.read_text())) - {"utils.py"}
    there = [f"/{path.relative_to(ROOT)}" for path in ROOT.glob("[!.]*/**/*.py")]
    assert sorted(name for name in named if not any(path.endswith(f"/{name}") for path in there)) == []


def test_the_path_of_a_round_and_the_steps_for_contributors_name_files() -> None:
    for page, at_least in ((DOCS / "architecture.md", 15), (ROOT / "CONTRIBUTING.md", 20)):
        assert len(set(PATH.findall(page.read_text()))) >= at_least


def test_every_drawn_part_is_in_the_architecture_page_once() -> None:
    marks = re.findall(r"<!-- drawn: ([a-z ]+) -->", (DOCS / "architecture.md").read_text())
    assert sorted(marks) == sorted(GENERATE["DRAWN"])


def test_every_target_of_the_makefile_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        word for page in [*PAGES, *FOR_PEOPLE_WHO_JOIN] for word in re.findall(r"`make ([a-z-]+)", page.read_text())
    }
    assert named <= targets


def test_the_index_names_every_page() -> None:
    named = set(re.findall(r"\]\(([a-z-]+\.md)\)", (DOCS / "index.md").read_text()))
    others = {page.name for page in PAGES} - {"index.md"}
    assert others <= named, "name it in docs/index.md"


def _metrics() -> set[str]:
    """Every name that either service exposes, as its code spells it."""
    code = (ROOT / "aggregator" / "telemetry.py").read_text() + (ROOT / "participant" / "telemetry.py").read_text()
    named = set(re.findall(r"\"(dcfpca_[a-z_]+)\"", code))
    kinds = re.search(r"kinds = \{(.*?)\n    \}", code, re.DOTALL)
    assert kinds
    return named | {f"dcfpca_run_{name}" for name in re.findall(r'^\s+"([a-z_]+)":', kinds[1], re.MULTILINE)}


def test_every_metric_is_documented_and_every_documented_one_exists() -> None:
    told = set(re.findall(r"`(dcfpca_[a-z_]+)`", (DOCS / "monitoring.md").read_text()))
    assert {re.sub(SUFFIXES, "", name).removesuffix("_info") for name in told} == {
        name.removesuffix("_info") for name in _metrics()
    }
    assert "dcfpca_local_step_seconds" in {family.name for family in SiteTelemetry().registry.collect()}


@pytest.mark.parametrize("path", ["deploy/grafana/dcfpca.json", "deploy/prometheus/alerts.yaml"])
def test_dashboards_and_alerts_use_metrics_that_exist(path: str) -> None:
    text = (ROOT / path).read_text()
    used = {re.sub(SUFFIXES, "", name) for name in re.findall(r"\b(dcfpca_[a-z_]+)\b", text)}
    assert len(used) > 5
    assert used <= _metrics()


def test_the_grafana_dashboard_is_json_with_panels_that_do_not_overlap() -> None:
    panels = json.loads((ROOT / "deploy/grafana/dcfpca.json").read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)
