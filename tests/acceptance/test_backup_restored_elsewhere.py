"""A backup taken in the middle of a run and restored elsewhere: real processes, the name of the aggregator moved."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dcfpca.rpca.synthetic import Recipe, generate
from tests.support.services.federation import Federation, relative
from tests.support.services.processes import Process, run_to_end
from tests.support.surroundings.proxy import Proxy

NAMES = ("alpha", "beta", "gamma")


@contextmanager
def _moveable(root: Path) -> Iterator[tuple[Federation, Proxy]]:
    """A federation whose members dial a name that can be moved to another aggregator."""
    problem = generate(Recipe(rows=24, columns=30, rank=2, sparsity=0.05, noise=0.05, counts=(10, 10, 10)), 3)
    with Federation(root) as federation:
        federation.start_aggregator()
        proxy = Proxy(federation.address)
        federation.address = proxy.address
        try:
            for name, own in zip(NAMES, problem.sites(), strict=True):
                federation.add_site(name, own.array)
            federation.start_sites(NAMES)
            yield federation, proxy
        finally:
            proxy.close()


def _back_up(federation: Federation, copy: Path) -> None:
    config = federation.root / "aggregator.toml"
    done = run_to_end("aggregator.main", "backup", "--config", str(config), "--out", str(copy))
    assert done.returncode == 0, done.stderr


def _restore(federation: Federation, proxy: Proxy, copy: Path) -> Process:
    """The copy as the store of an aggregator in another directory, on another port; the name leads there."""
    elsewhere = federation.root / "elsewhere"
    elsewhere.mkdir()
    copy.rename(elsewhere / "store.db")
    config = (federation.root / "aggregator.toml").read_text()
    (elsewhere / "aggregator.toml").write_text(config)
    restored = Process("aggregator.main", ["serve", "--config", str(elsewhere / "aggregator.toml")], elsewhere / "log")
    federation.processes["elsewhere"] = restored
    restored.await_action("serving")
    proxy.lead_to((elsewhere / "ready").read_text().strip())
    return restored


def _start_and_copy(federation: Federation, copy: Path) -> str:
    """A run under way, and a copy of the store; a site that is stopped meanwhile keeps it in its round."""
    run_id = federation.propose(rank=2, rounds=400, tolerance=1e-9, round_seconds=60, quorum=3, closing_rounds=False)
    federation.aggregator.await_action("consensus_reached", run=run_id, round=2)
    federation.processes["beta"].signal(signal.SIGSTOP)
    _back_up(federation, copy)
    return run_id


@pytest.mark.slow
def test_a_backup_restored_elsewhere_continues_the_run_that_was_open(tmp_path: Path) -> None:
    with _moveable(tmp_path) as (federation, proxy):
        run_id = _start_and_copy(federation, tmp_path / "copy.db")
        federation.aggregator.kill()
        federation.processes["beta"].signal(signal.SIGCONT)
        restored = _restore(federation, proxy, tmp_path / "copy.db")
        done = federation.finish(run_id)
        assert restored.await_action("run_finished", run=run_id)
        rounds = [view.round for view in done.rounds]
        assert rounds == sorted(set(rounds))
        for name, alone in zip(NAMES, federation.simulate(done, NAMES).results, strict=True):
            # With every site in every round (the quorum is all) it is the same answer, by another way.
            assert relative(federation.result(name, run_id).L, alone.L) <= 1e-6
