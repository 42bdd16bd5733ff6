"""The verdict on a finished run and the curve its rank was chosen by, as operators see them."""

from __future__ import annotations

from aggregator.run.state import Status
from aggregator.runner import Runner
from dcfpca.errors import DcfpcaError
from dcfpca.v1 import admin_pb2 as pb

UNJUDGED = "The run ended without the closing rounds that judge an answer"


async def verdict_view(runner: Runner) -> pb.VerdictView | None:
    """The verdict on a finished run; None while it is not finished.

    An answer that cannot be read from the store is not sound: the list of runs must not fail for one of them.
    """
    if runner.run.status is not Status.FINISHED:
        return None
    try:
        verdict = (await runner.final.judgement()).verdict
    except DcfpcaError as error:
        return pb.VerdictView(sentence=f"The answer cannot be read: {error}.", reasons=[str(error)], advice=error.hint)
    if verdict is None:
        reason = runner.run.reason or "no closing round was held"
        return pb.VerdictView(sentence=f"{UNJUDGED}: {reason}.", reasons=[reason], advice=_unjudged(runner.run.run_id))
    return pb.VerdictView(
        sound=verdict.sound,
        sentence=verdict.sentence,
        reasons=verdict.reasons,
        advice=_advice(runner, verdict.reasons),
        notes=verdict.notes,
    )


async def rank_curve_view(runner: Runner) -> list[pb.RankErrorView]:
    """The error on hidden entries by rank; empty where the run has not come so far, or its method has none."""
    if runner.run.status is not Status.FINISHED:
        return []
    try:
        curve = (await runner.final.judgement()).rank_curve
    except DcfpcaError:
        return []
    if curve is None:
        return []
    return [
        pb.RankErrorView(rank=int(rank), error=float(error), standard_error=float(deviation))
        for rank, error, deviation in curve
    ]


def _unjudged(run_id: str) -> str:
    """What an operator does about a run whose flags were not judged."""
    again = f"for flags with a known rate of false alarms, dcfpca run start --warm-start {run_id}"
    return f"each site: dcfpca-participant results has L and S, not judged; {again}"


def _advice(runner: Runner, reasons: tuple[str, ...]) -> str:
    """What an operator does next about a run with these reasons against it."""
    if not reasons:
        return f"dcfpca run report {runner.run.run_id} --out report.html; each site: dcfpca-participant results"
    return "propose the run again with the change that the reasons name; the sites' results are kept meanwhile"
