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
SUFFIXES = r"(_total|_sum|_count|_bucket)$"


@pytest.mark.parametrize(("name", "make"), [("configuration.md", "configuration"), ("cli.md", "commands")])
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


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
    told = set(re.findall(r"`(dcfpca_[a-z_]+)`", (DOCS / "operations.md").read_text()))
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
