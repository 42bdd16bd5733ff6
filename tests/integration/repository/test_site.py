"""The documentation site builds without a warning, and leads to every page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site.assemble import main as assemble
from docs.site.state_svg import replace_diagrams
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow


def test_the_site_builds_without_a_warning_and_has_what_readers_look_for(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    assemble(tmp_path)
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--fail-on-warning", "--quiet"]
    sources, site = tmp_path / "site-source", tmp_path / "site"
    built = subprocess.run([*command, sources, site], cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert (site / "searchindex.js").stat().st_size > 10_000
    api = (site / "api.html").read_text()
    for name in ("RobustPCA", "Federation", "read_result"):
        assert f'id="dcfpca.{name}"' in api
    assert (site / "architecture.html").read_text().count('class="state-diagram"') == 4
    _leads_to_every_page(site, site / "llms.txt")
    pages = [page for page in site.glob("**/*.html") if page.name not in ("genindex.html", "search.html")]
    from_elsewhere = re.compile(r'<(?:script|img|iframe)[^>]*src="https?:|<link[^>]*stylesheet[^>]*href="https?:')
    assert [page.name for page in pages if from_elsewhere.search(page.read_text())] == []


def _leads_to_every_page(site: Path, listing: Path) -> None:
    named = set(re.findall(r"\]\(([\w/-]+\.html)\)", listing.read_text()))
    made = {str(page.relative_to(site)) for page in site.glob("*.html")}
    assert made - named <= {"index.html", "overview.html", "genindex.html", "search.html"}
    assert [name for name in named if not (site / name).exists()] == []


def test_a_state_diagram_is_drawn_with_every_arrow_in_its_legend() -> None:
    drawn = replace_diagrams("```mermaid\nstateDiagram-v2\n    [*] --> a: begin\n    a --> b_c: go<br/>or run\n```")
    assert drawn.count('class="arrow"') == 2
    assert "2. a → b c: go; or run" in drawn
    assert "mermaid" not in drawn
