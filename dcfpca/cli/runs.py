"""`dcfpca run`: propose runs, look at them, follow them, end them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dcfpca.cli.watching import Patience, Watch, unless_finished
from dcfpca.operator.client import Operator
from dcfpca.operator.connection import operates
from dcfpca.spec import MethodName
from dcfpca.text.console import FAILED, print_json, result, say, show
from dcfpca.text.run_progress import Progress
from dcfpca.text.run_views import run_document, run_listing, run_picture, runs_table
from dcfpca.v1 import admin_pb2 as pb

app = typer.Typer(help="Propose runs, look at them, follow them, end them.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="The run's identifier, as `run list` shows it.")]
Follow = Annotated[bool, typer.Option("--watch", help="Follow the run; exit 0 only if it finishes.")]


def _key(name: str, help: str) -> Any:
    return typer.Option(name, help=help, rich_help_panel="Spec", show_default=False)


@app.command()
@operates
def start(
    operator: Operator,
    spec: Annotated[Path | None, typer.Argument(metavar="SPEC.toml", help="The spec; flags win over it.")] = None,
    method: Annotated[MethodName | None, _key("--method", "subspace or gradient.")] = None,
    rows: Annotated[int | None, _key("--rows", "Rows of every site's matrix; else as the sites say.")] = None,
    rank: Annotated[int | None, _key("--rank", "The exact rank.")] = None,
    max_rank: Annotated[int | None, _key("--max-rank", "An upper bound; the rank is found.")] = None,
    rounds: Annotated[int | None, _key("--rounds", "Stop after so many rounds.")] = None,
    tolerance: Annotated[float | None, _key("--tolerance", "Stop when the subspace moves less.")] = None,
    quorum: Annotated[int | None, _key("--quorum", "Fewest updates that a round needs.")] = None,
    aggregation: Annotated[Literal["secure", "plain"] | None, _key("--aggregation", "secure or plain.")] = None,
    precision: Annotated[int | None, _key("--precision", "Bits per number in a secure sum: 64 or 32.")] = None,
    participants: Annotated[str | None, _key("--participants", "A fixed cohort, as a,b,c.")] = None,
    export: Annotated[bool | None, _key("--export/--no-export", "Ask public sites for reconstructions.")] = None,
    enrol_seconds: Annotated[float | None, _key("--enrol-seconds", "How long enrolment stays open.")] = None,
    round_seconds: Annotated[float | None, _key("--round-seconds", "Deadline of a round.")] = None,
    seed: Annotated[int | None, _key("--seed", "Of the random start.")] = None,
    warm_start: Annotated[str | None, _key("--warm-start", "Start from this finished run's subspace.")] = None,
    label: Annotated[str | None, _key("--label", "A name for people.")] = None,
    settings: Annotated[list[str] | None, _key("--set", "Any key of the spec, as key=value. Repeat.")] = None,
    watch: Follow = False,
    as_json: Json = False,
) -> None:
    """Propose a run to the participants. Prints the run's identifier."""
    flags = {
        "method": method,
        "rows": rows,
        "rank": rank,
        "max_rank": max_rank,
        "rounds": rounds,
        "tolerance": tolerance,
        "quorum": quorum,
        "aggregation": aggregation,
        "precision": precision,
        "participants": None if participants is None else _names(participants),
        "export": export,
        "enrol_seconds": enrol_seconds,
        "round_seconds": round_seconds,
        "seed": seed,
        "warm_start": warm_start,
        "label": label,
    }
    proposed = _canonical(spec, flags, settings or ())
    _proceed(operator, operator.propose(proposed, uuid.uuid4().hex), watch, as_json)


@app.command("list")
@operates
def list_runs(
    operator: Operator,
    limit: Annotated[int, typer.Option(min=0, help="At most so many, newest first; 0: all.")] = 0,
    as_json: Json = False,
) -> None:
    """Show all runs, newest first."""
    runs = operator.runs(limit)
    if as_json:
        print_json([run_listing(view) for view in runs])
    elif runs:
        show(runs_table(runs))
    else:
        say("no runs yet; propose one with `dcfpca run start`")


@app.command("show")
@operates
def show_run(operator: Operator, run: Run, as_json: Json = False) -> None:
    """Show one run with all its rounds."""
    view = operator.run(run)
    if as_json:
        print_json(run_document(view))
    else:
        show(run_picture(view))


@app.command()
@operates
def watch(
    operator: Operator,
    run: Run,
    patience: Annotated[float, typer.Option(min=0, help="Seconds to wait for an aggregator that went away.")] = 600.0,
    as_json: Json = False,
) -> None:
    """Follow a run until it is over or paused, through restarts of the aggregator. Exit 0 only if it finished."""
    _follow(operator, pb.RunView(run_id=run), Patience(patience), as_json)


@app.command()
@operates
def abort(
    operator: Operator,
    run: Run,
    reason: Annotated[str, typer.Option(help="Why, for the record and for the participants.")] = "",
    as_json: Json = False,
) -> None:
    """End a run. One that is over stays as it is."""
    view = operator.abort(run, reason)
    if as_json:
        print_json(run_document(view))
    else:
        say(f"run {run} is {view.status}{': ' + view.reason if view.reason else ''}")


@app.command()
@operates
def resume(operator: Operator, run: Run, watch: Follow = False, as_json: Json = False) -> None:
    """Let a paused run go on with a new attempt at the same round."""
    _proceed(operator, operator.resume(run), watch, as_json)


def _canonical(path: Path | None, flags: Mapping[str, Any], settings: Sequence[str]) -> bytes:
    """The spec as it is proposed."""
    from dcfpca.cli.proposal import proposal  # noqa: PLC0415  brings the numerics, which no other command here needs

    return proposal(path, flags, settings).canonical()


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _proceed(operator: Operator, view: pb.RunView, watch: bool, as_json: bool) -> None:
    """Say which run it is, and follow it where asked to."""
    if not as_json:
        result(view.run_id)
    if watch:
        _follow(operator, view, Patience(), as_json)
    elif as_json:
        print_json(run_document(view))
    else:
        say(f"{view.status}; follow it with `dcfpca run watch {view.run_id}`")


def _follow(operator: Operator, view: pb.RunView, patience: Patience, as_json: bool) -> None:
    """Watch to the end; fail unless the run finished. A view without a status only names the run."""
    try:
        with Progress() as progress:
            if view.status:
                progress.update(view)
            view = Watch(operator, view.run_id, progress, patience).follow()
    except KeyboardInterrupt:
        say(f"no longer watching; the run goes on: `dcfpca run watch {view.run_id}`")
        raise typer.Exit(FAILED) from None
    if as_json:
        print_json(run_document(view))
    if error := unless_finished(view):
        raise error
