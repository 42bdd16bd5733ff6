"""Finding the run that a message names."""

from __future__ import annotations

from aggregator.rpc.status_errors import Missing
from aggregator.run_registry import RunRegistry
from aggregator.runner import Runner


def runner_of(registry: RunRegistry, run_id: str) -> Runner:
    """The run of this id; raises Missing."""
    runner = registry.runners.get(run_id)
    if runner is None:
        raise Missing(f"there is no run {run_id[:80]!r}", "`dcfpca run list` shows them")
    return runner
