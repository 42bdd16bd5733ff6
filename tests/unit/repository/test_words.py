"""Pages stay short enough to be read: a page over its limit is shortened, or its history goes to docs/notes."""

from __future__ import annotations

import re

import pytest

from tests.support.paths import ROOT

MOST_WORDS = {
    "README.md": 900,
    "docs/tutorial.md": 1200,
    "docs/first-data-set.md": 1200,
    "docs/operations.md": 2000,
    "docs/threat-model.md": 2500,
    "docs/what-leaves.md": 700,
    "docs/protocol.md": 3000,
    "docs/solver.md": 2500,
    "docs/results.md": 2000,
    "docs/faq.md": 1200,
}


@pytest.mark.parametrize("page", MOST_WORDS)
def test_a_page_is_within_its_limit(page: str) -> None:
    assert len((ROOT / page).read_text().split()) <= MOST_WORDS[page]


def test_the_readme_is_one_screen_and_links() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 140


def test_the_newest_version_has_a_date_and_at_most_forty_bullets() -> None:
    newest = re.split(r"(?m)^## ", (ROOT / "CHANGELOG.md").read_text())[1]
    assert re.match(r"\d+\.\d+\.\d+ — \d{4}-\d{2}-\d{2}\n", newest)
    assert len(re.findall(r"(?m)^- ", newest)) <= 40


def test_glossary_and_questions_are_as_many_as_promised() -> None:
    assert len(re.findall(r"(?m)^\| \*\*", (ROOT / "docs/glossary.md").read_text())) >= 30
    assert len(re.findall(r"(?m)^\*\*\d+\. ", (ROOT / "docs/faq.md").read_text())) >= 20
