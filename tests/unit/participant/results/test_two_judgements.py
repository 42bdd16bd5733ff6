"""Both judgements of a result in words: unusual for all sites, and unusual at this one."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Outcome
from dcfpca.rpca.simulate import exchange
from dcfpca.spec import parse_spec
from dcfpca.terms import Terms
from participant.findings.worklist import Finding, read_worklist
from participant.results.manifest import ResultFacts, usual_here_notes
from participant.results.writing import write_results

ROWS, COLUMNS, SITES, NOISY = 20, 120, 12, 3
FACTS = ResultFacts("run-1", "a", bytes(32), 9, Outcome.CONVERGED.value, "2026-01-01T00:00:00+00:00")
NAMES = tuple(f"f{row}" for row in range(ROWS))


@cache
def _found() -> tuple[dict[str, list[str]], list[Finding]]:
    """Notes and findings of the first of twelve sites: three of its columns have a pattern that two others have
    throughout, and one of its features is measured by a device that is eight times as noisy."""
    rng = np.random.default_rng(1)
    factors, pattern = rng.normal(size=(ROWS, 2)), np.zeros(ROWS)
    pattern[10:16] = 1.0
    sites = [factors @ rng.normal(size=(2, COLUMNS)) + 0.4 * rng.normal(size=(ROWS, COLUMNS)) for _ in range(SITES)]
    for place in (-2, -1):
        sites[place] += 4.0 * np.outer(pattern, rng.normal(size=COLUMNS))
    sites[0][:, :3] += 5.0 * pattern[:, None]
    sites[0][NOISY] += 3.0 * rng.normal(size=COLUMNS)
    spec = parse_spec({"features": NAMES, "rank": 3})
    method = method_of(spec)
    own, consensus = [method.site(ArrayColumns(M)) for M in sites], method.begin()
    while consensus.outcome is None:
        consensus = method.advance(consensus, exchange(method, consensus, own))
    with TemporaryDirectory() as target:
        write_results(Path(target), FACTS, Terms.of(spec), own[0], consensus, ArrayColumns(sites[0]))
        manifest = json.loads((Path(target) / "run-1" / "manifest.json").read_text())
        return manifest["verdict"], read_worklist(Path(target) / "run-1")


@pytest.mark.slow
def test_an_entry_that_only_this_site_finds_unusual_is_flagged_and_says_so() -> None:
    planted = [one for one in _found()[1] if one.sample in "012" and one.feature in NAMES[10:16]]
    alone = [one for one in planted if one.unusual_for == "this site only"]
    assert len(alone) >= 12
    assert all("usual for all sites together, unusual at this one" in one.unusual for one in alone)


@pytest.mark.slow
def test_values_that_are_high_for_all_sites_and_usual_here_are_named_by_feature() -> None:
    notes = [note for note in _found()[0]["notes"] if "compared with all sites, and usual at this one" in note]
    assert notes
    assert all(note.startswith(f"{NAMES[NOISY]}: ") for note in notes)


def test_a_few_values_that_are_usual_here_are_chance_and_not_named() -> None:
    counts = np.zeros((3, 2))
    counts[0, 0], counts[1, 1], counts[2, 0] = 4, 30, 19
    (note,) = usual_here_notes(counts, 1000, ("age", "bmi", "chol"))
    assert note.startswith("bmi: 30 of 1000 values are low compared with all sites")


@pytest.mark.parametrize(
    ("changes", "said"), [({}, False), ({"covariance": False}, True), ({"method": "gradient"}, True)]
)
def test_a_run_without_a_view_of_the_sites_own_says_so(tmp_path: Path, changes: dict[str, object], said: bool) -> None:
    rng = np.random.default_rng(4)
    M = rng.normal(size=(8, 1)) @ rng.normal(size=(1, 60)) + 0.3 * rng.normal(size=(8, 60))
    spec = parse_spec({"rows": 8, "rank": 1, "rounds": 30} | changes)
    method = method_of(spec)
    site, consensus = method.site(ArrayColumns(M)), method.begin()
    while consensus.outcome is None:
        consensus = method.advance(consensus, exchange(method, consensus, [site]))
    write_results(tmp_path, FACTS, Terms.of(spec), site, consensus, ArrayColumns(M))
    notes = json.loads((tmp_path / "run-1" / "manifest.json").read_text())["verdict"]["notes"]
    assert any("no view of the site's own" in note for note in notes) == said
