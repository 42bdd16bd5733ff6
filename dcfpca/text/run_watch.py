"""Follows a run to its end and shows it, across restarts of the aggregator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dcfpca.errors import Refused
from dcfpca.operator.client import Operator
from dcfpca.operator.run_stream import RetryPolicy, run_views
from dcfpca.text.run_progress import RunHistory, RunProgress
from dcfpca.text.run_views import reason_without_refusals
from dcfpca.v1 import admin_pb2 as pb


def follow_run(
    operator: Operator,
    run_id: str,
    progress: RunProgress,
    retry: RetryPolicy | None = None,
    on_update: Callable[[RunHistory], None] | None = None,
) -> pb.RunView:
    """Show the run until it is over or paused; returns its last view with all rounds.

    After a lost connection only the missing rounds are asked for. Raises Unreachable when the connection stays lost for
    longer than the retry policy allows.
    """
    retry, history, lost = retry or RetryPolicy(), progress.history, False

    def note_lost() -> None:
        nonlocal lost
        lost = True
        progress.note("the connection to the aggregator was lost; trying again")

    # Once a view was shown the address is known to be right, and a lost connection is waited for.
    retry = replace(retry, from_start=retry.from_start or bool(history.view.run_id))
    for view in run_views(operator, run_id, retry, after_round=history.last_round, on_lost=note_lost):
        if lost:
            progress.note("connected again")
        lost = False
        progress.update(view)
        if on_update:
            on_update(history)
    return history.complete_view()


def raise_unless_finished(view: pb.RunView, hint: str = "") -> None:
    """Raise Refused with the run's reason unless the run has finished; `hint` replaces the usual one.

    Whoever watched the run has seen each refusal, so the reason only names who refused.
    """
    reason = reason_without_refusals(view)
    match view.status:
        case "finished":
            return
        case "paused":
            resume = f"when the cause is removed: `dcfpca run resume {view.run_id}`"
            usual = f"{resume}; to end it: `dcfpca run finish` with what it has, `dcfpca run abort` without a result"
            raise Refused(f"run {view.run_id} is paused: {reason}", hint or usual)
        case _:
            raise Refused(f"run {view.run_id} {view.status}: {reason or 'no reason was given'}", hint)
