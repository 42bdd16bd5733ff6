"""Pages stay short enough to be read: a page over its limit is shortened, or its history goes to docs/notes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from docs.messages import KINDS, messages
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
# What readers stumbled over, and what to write instead. A general prose linter was tried: three of its remarks helped.
WRITE_INSTEAD = {
    r"\banew\b": "again",
    r"\bfor ever\b": "permanently, or no limit",
    r"\bany more\b": "no longer",
    r"\b(at most|after|of|for|more than) so many\b": "this many, that number",
    r"\btells? of\b": "says, reveals",
    r"\bspeaks? against\b": "contradicts",
    r"\b(rooms|houses?|doors?)\b": "packages: the reader does not know our images",
    r"\bbe had\b": "installed, obtained",
    r"\blets? expect\b": "predicts",
    r"\bfewer than none\b": "negative",
    r"\bof no possible\b": "impossible",
    r"\bvery\b": "nothing, or a number",
    r"\b([a-z]+)\s+\1\b": "the word once",
    r"[a-z]::\n": "one colon",
}
PAGES = sorted(
    path
    for folder in (ROOT, ROOT / "docs", ROOT / "docs/notes", ROOT / "deploy", ROOT / "certs", ROOT / "examples")
    for path in folder.glob("*.md")
    if path.name not in {"CHANGELOG.md", "notebook.md"}
)


def stumbling_blocks(text: str) -> list[str]:
    prose = re.sub(r"(?ms)^```.*?^```|^    .*?$|`[^`\n]*`", "`", text)
    found = {rule: match[0] for rule in WRITE_INSTEAD if (match := re.search(rule, prose))}
    return [f"{words!r}: write {WRITE_INSTEAD[rule]}" for rule, words in found.items()]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_has_no_phrase_that_readers_stumble_over(page: Path) -> None:
    assert stumbling_blocks(page.read_text()) == []


def test_no_message_of_the_software_has_such_a_phrase() -> None:
    assert stumbling_blocks(messages()) == []


@pytest.mark.parametrize("package", ["dcfpca", "aggregator", "participant"])
def test_no_docstring_has_such_a_phrase(package: str) -> None:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))) if blocks := stumbling_blocks(text):
                    found[f"{path}:{node.lineno}"] = blocks
    assert not found


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("Verdicts, and notes about a site", "- few or no entries are flagged\n"),
        ("Why a site refuses or asks", "- this participant is private: its reconstruction never leaves the site\n"),
        ("Certificates", "- {where} is not a PEM signing request → make one with `dcfpca certs request`\n"),
        ("Actions in the logs", "`run_proposed`"),
    ],
)
def test_messages_stand_together_by_kind(kind: str, sentence: str) -> None:
    parts = dict(part.split("\n", 1) for part in messages().split("\n## ")[1:])
    assert sentence in parts[kind]
    assert list(parts)[:-1] == list(KINDS)


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
