"""Finding the run that a message names."""

from __future__ import annotations

from aggregator.rpc.guard import caller
from aggregator.rpc.status_errors import Missing, OutOfTurn
from aggregator.run_registry import RunRegistry
from aggregator.runner import Runner
from aggregator.store.database import StoreFailed
from dcfpca.identity import Role


def runner_of(registry: RunRegistry, run_id: str) -> Runner:
    """The run of this id; raises Missing, or what is wrong with a run that cannot be served.

    A participant is told to try again later: a run that is held is not over.
    """
    runner = registry.runners.get(run_id)
    if held := registry.held.get(run_id):
        kind = StoreFailed if caller().identity.role is Role.PARTICIPANT else OutOfTurn
        raise kind(f"run {run_id} cannot be served: {held.reason}", held.hint)
    if runner is None:
        raise Missing(f"there is no run {run_id[:80]!r}", "`dcfpca run list` shows them")
    return runner
