"""Every claim of the threat model names the test that would fail if it were not so."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "threat-model.md").read_text()


def claims() -> list[list[str]]:
    """The rows of all tables whose last column says what shows the claim, as cells."""
    rows: list[list[str]] = []
    shown = False
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            shown = False
        elif cells[-1].startswith("shown by"):
            shown = True
        elif shown and set(cells[0]) != {"-"}:
            rows.append(cells)
    return rows


def test_every_claim_names_a_test() -> None:
    rows = claims()
    assert len(rows) > 40
    assert [cells[0] for cells in rows if not re.search(r"`(tests/[\w/]+\.py|test_\w+)", cells[-1])] == []


def test_a_test_that_is_named_twice_in_one_row_is_named_once() -> None:
    for cells in claims():
        named = re.findall(r"`([\w/.]+(?:::\w+)?)`", cells[-1])
        assert len(set(named)) == len(named), cells
