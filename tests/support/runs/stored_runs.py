"""What a store of the aggregator holds, read back whole."""

from __future__ import annotations

from aggregator.store import run_rows
from aggregator.store.run_rows import HeldRun, StoredRun
from aggregator.store.store import Store


def read_runs(store: Store) -> list[StoredRun | HeldRun]:
    """Every run, oldest first; for one that is damaged or in an unknown format, why it cannot be served."""
    found = [run_rows.read_run(store.connection, run_id) for run_id in run_rows.run_ids(store.connection)]
    return sorted(found, key=lambda one: one.run.created_at if isinstance(one, StoredRun) else one.created_at)


def load_runs(store: Store) -> list[StoredRun]:
    """Every run that can be served."""
    return [one for one in read_runs(store) if isinstance(one, StoredRun)]


def round_views(store: Store, run_id: str) -> list[bytes]:
    """The finished rounds of a run, oldest first."""
    return run_rows.round_views(store.connection, run_id)
