"""A member whose daemon lies about its own numbers, among honest daemons and an honest aggregator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.hostile.count_cells import patients
from tests.support.hostile.lying_member import LIE
from tests.support.services.federation import Federation, relative

pytestmark = pytest.mark.slow
HONEST, LIAR = ("ann", "bob"), "mallory"
NAMES = (*HONEST, LIAR)
ROWS = 20


@contextmanager
def with_liar(root: Path, lie: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Federation]:
    with Federation(root) as federation:
        federation.start_aggregator()
        for name, table in zip(NAMES, patients(), strict=True):
            federation.add_site(name, table[:ROWS])
        federation.start_sites(HONEST)
        (root / "sites" / LIAR / "state").mkdir(mode=0o700)
        monkeypatch.setenv(LIE, lie)
        federation.start_as(LIAR, "tests.support.hostile.lying_member").await_action("connected")
        yield federation


@pytest.mark.parametrize("share", [0.3, 1.0, 30.0])
def test_more_in_the_counts_of_the_null_than_there_are_entries_ends_the_run_without_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    with with_liar(tmp_path, f"null {share}", monkeypatch) as federation:
        view = federation.follow(federation.propose(max_rank=3, scaling="robust", participants=NAMES))
        assert view.status in ("failed", "paused"), view.verdict
        assert "cannot be true" in view.reason
        assert not list((tmp_path / "sites").glob("*/results/*/manifest.json"))


def test_three_false_misfits_cost_digits_and_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with with_liar(tmp_path, "misfits 4", monkeypatch) as federation:
        view = federation.finish(federation.propose(max_rank=3, scaling="robust", participants=NAMES))
        alone = federation.simulate(view, NAMES)
        for name, mine in zip(NAMES, alone.results, strict=True):
            result = federation.result(name, view.run_id)
            assert relative(result.L, mine.L) <= 1e-6
            assert json.loads(result.manifest)["consensus_verified"]
        reported = [one for one in federation.aggregator.events() if one.get("message") == "misfit_reported"]
        assert [one["participant"] for one in reported] == [LIAR] * 3
