"""`dcfpca run`: propose, list, show, watch, abort, finish, resume, restart and delete runs."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dcfpca.cli.connection_options import with_operator
from dcfpca.operator.client import Operator
from dcfpca.operator.run_stream import RetryPolicy
from dcfpca.rpca import MethodName
from dcfpca.text.command_runner import FAILED
from dcfpca.text.console import print_json, result, say, show
from dcfpca.text.run_progress import RunHistory, RunProgress
from dcfpca.text.run_views import enrolment_lines, run_document, run_listing, run_picture, runs_table, unknown_names
from dcfpca.text.run_watch import follow_run, raise_unless_finished
from dcfpca.v1 import admin_pb2 as pb

app = typer.Typer(
    help="Propose, inspect, watch, abort, finish, resume, restart, export and audit runs.", no_args_is_help=True
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="The run: its identifier, the beginning of it, or `latest`.")]
Reason = Annotated[str, typer.Option(help="The reason, for the audit log and the participants.")]
Follow = Annotated[bool, typer.Option("--watch", help="Watch the run; exit 0 only if it finishes.")]


COUNTED = "(counted from 0)"
RECENT_RUNS = 50
"""How many runs are searched for the last one whose cohort sites will compare with the next."""


def _key(name: str, help: str) -> Any:
    return typer.Option(name, help=help, rich_help_panel="Spec", show_default=False)


@app.command()
@with_operator
def start(
    operator: Operator,
    spec: Annotated[Path | None, typer.Argument(metavar="SPEC.toml", help="The spec; flags override it.")] = None,
    method: Annotated[MethodName | None, _key("--method", "How the low-rank part is found.")] = None,
    rows: Annotated[int | None, _key("--rows", "How many features; by default as the sites report.")] = None,
    rank: Annotated[int | None, _key("--rank", "The exact rank.")] = None,
    max_rank: Annotated[int | None, _key("--max-rank", "An upper bound; the method finds the rank below it.")] = None,
    rounds: Annotated[int | None, _key("--rounds", "Stop after this many rounds.")] = None,
    tolerance: Annotated[float | None, _key("--tolerance", "Stop when the subspace changes by less than this.")] = None,
    quorum: Annotated[
        int | None, _key("--quorum", "Fewest sites that must enrol (secure run) or answer a round (plain run).")
    ] = None,
    aggregation: Annotated[
        Literal["secure", "plain"] | None,
        _key("--aggregation", "secure: the aggregator sees only sums. plain: it sees each site's update."),
    ] = None,
    precision: Annotated[int | None, _key("--precision", "Bits per number in a secure sum: 64 or 32.")] = None,
    participants: Annotated[
        str | None, _key("--participants", "Who takes part, such as a,b,c; by default whoever enrols.")
    ] = None,
    export: Annotated[bool | None, _key("--export/--no-export", "Ask public sites for reconstructions.")] = None,
    enrol_seconds: Annotated[float | None, _key("--enrol-seconds", "How long enrolment stays open.")] = None,
    round_seconds: Annotated[float | None, _key("--round-seconds", "Deadline of a round.")] = None,
    seed: Annotated[int | None, _key("--seed", "Seed of the random start.")] = None,
    warm_start: Annotated[str | None, _key("--warm-start", "Start from this finished run's subspace.")] = None,
    label: Annotated[str | None, _key("--label", "A label for listings and reports.")] = None,
    columns: Annotated[
        float | None,
        typer.Option(
            "--columns",
            min=1,
            max=1e15,
            help="About how many columns the sites have together, such as 1e5. For a run with differential privacy, "
            "the "
            "command then states the expected error, and proposes no run whose error is above privacy.max_error.",
        ),
    ] = None,
    settings: Annotated[list[str] | None, _key("--set", "Any key of the spec, as key=value. Repeatable.")] = None,
    watch: Follow = False,
    as_json: Json = False,
) -> None:
    """Propose a run to the participants. Prints the run's identifier."""
    given = dict(locals())
    from dcfpca.operator.proposals import (  # noqa: PLC0415  imports NumPy
        cohort_note,
        expected_error,
        expected_size,
        presence_note,
        spec_from_flags,
        with_time_for_people,
    )
    from dcfpca.spec import RunSpec  # noqa: PLC0415  imports NumPy

    flags = {key: value for key, value in given.items() if key in RunSpec.model_fields}
    proposed = spec_from_flags(spec, flags | {"participants": participants and _names(participants)}, settings or ())
    known = operator.participants()
    exposed = cohort_note(proposed, operator.runs(RECENT_RUNS), known)
    notes = [*expected_size(proposed, known), expected_error(proposed, columns, known), exposed]
    proposed, waits = with_time_for_people(proposed, known, asked=bool(exposed and proposed.participants))
    for sentence in (presence_note(proposed, known), *notes, waits, *unknown_names(proposed.participants, known)):
        if sentence:
            say(sentence)
    _proceed(operator, operator.propose(proposed.canonical(), uuid.uuid4().hex), watch, as_json)


@app.command("list")
@with_operator
def list_runs(
    operator: Operator,
    limit: Annotated[int, typer.Option(min=0, help="At most this many; 0 shows all.")] = 0,
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
@with_operator
def show_run(
    operator: Operator,
    run: Run,
    timing: Annotated[
        bool, typer.Option("--timing", help="Show the time of each stage instead of every round.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show one run with all its rounds."""
    view = operator.run(run)
    if as_json:
        print_json(run_document(view))
    else:
        show(run_picture(view, timing=timing))


@app.command()
@with_operator
def watch(
    operator: Operator,
    run: Run,
    patience: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Seconds to keep trying when the aggregator cannot be reached, at the start or later. Without it: "
            "none at the start, 600 later.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Watch a run until it is over or paused, through restarts of the aggregator. Exit 0 only if it finished.

    The sites write their results after that, each in its own time: `dcfpca-participant results` there shows them.
    """
    retry = RetryPolicy() if patience is None else RetryPolicy(patience, from_start=True)
    _follow(operator, pb.RunView(run_id=run), retry, as_json)


@app.command()
@with_operator
def abort(
    operator: Operator,
    run: Run,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Abort a run. A run that is over stays as it is."""
    _show_status(operator.abort(run, reason), as_json)


@app.command()
@with_operator
def resume(operator: Operator, run: Run, watch: Follow = False, as_json: Json = False) -> None:
    """Resume a paused run at the same round; updates that a secure run has accepted stay valid."""
    _proceed(operator, operator.resume(run), watch, as_json)


@app.command()
@with_operator
def finish(
    operator: Operator,
    run: Run,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Finish a running or paused run with the consensus it has; the sites form their results from it."""
    _show_status(operator.finish(run, reason), as_json)


@app.command()
@with_operator
def restart(
    operator: Operator,
    run: Run,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="SITE", help="A site to leave out. Repeatable.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A key of the spec to change, as key=value. Repeatable.")
    ] = None,
    watch: Follow = False,
    as_json: Json = False,
) -> None:
    """Propose a run like one that is over or paused, starting from the consensus it reached.

    A paused run is finished with its consensus first, or aborted if it has none. Without a site the cohort shrinks: the
    command says which sites are asked to approve that.
    """
    from dcfpca.operator.proposals import end_paused, restart_of  # noqa: PLC0415  imports NumPy

    earlier = operator.run(run)
    again = restart_of(earlier, without or (), settings or ())
    if ended := end_paused(operator, earlier):
        say(ended)
    view = operator.propose(again.spec.canonical(), uuid.uuid4().hex)
    for sentence in again.sentences(view.run_id, run):
        say(sentence)
    _proceed(operator, view, watch, as_json)


@app.command()
@with_operator
def delete(
    operator: Operator,
    run: Run,
    reason: Annotated[str, typer.Option(help="The reason, for the audit log.")] = "",
    as_json: Json = False,
) -> None:
    """Delete a run that is over, or damaged, from the aggregator: its rounds, model and exports.

    The audit log keeps its entries. What the sites have, results and ledgers, is theirs and stays.
    """
    operator.delete(run, reason)
    print_json({"deleted": run}) if as_json else say(f"run {run} is deleted; the audit log keeps its entries")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _show_status(view: pb.RunView, as_json: bool) -> None:
    if as_json:
        print_json(run_document(view))
    else:
        say(f"run {view.run_id} is {view.status}{': ' + view.reason if view.reason else ''}")


def _proceed(operator: Operator, view: pb.RunView, watch: bool, as_json: bool) -> None:
    """Print the run's identifier, and follow the run if `watch` is set."""
    if not as_json:
        result(view.run_id)
    if watch:
        _follow(operator, view, RetryPolicy(), as_json)
    elif as_json:
        print_json(run_document(view))
    else:
        for line in enrolment_lines(view, operator.participants()) if view.status != "enrolling" else ():
            say(line)
        say(f"{view.status}; watch it with `dcfpca run watch {view.run_id}`")


class _EnrolmentNote:
    """Says once who has enrolled, and why others have not, when a watched enrolment has closed."""

    def __init__(self, operator: Operator, progress: RunProgress) -> None:
        self._operator, self._progress = operator, progress
        self._enrolling = False

    def __call__(self, history: RunHistory) -> None:
        if history.view.status == "enrolling":
            self._enrolling = True
        elif self._enrolling:
            self._enrolling = False
            for line in enrolment_lines(history.view, self._operator.participants(), refusals_shown=True):
                self._progress.note(line)


def _follow(operator: Operator, view: pb.RunView, retry: RetryPolicy, as_json: bool) -> None:
    """Show the run to its end; raises Refused unless it finished. A view without a status only names the run."""
    try:
        with RunProgress() as progress:
            if view.status:
                progress.update(view)
            view = follow_run(operator, view.run_id, progress, retry, _EnrolmentNote(operator, progress))
    except KeyboardInterrupt:
        say(f"stopped watching; the run continues: `dcfpca run watch {view.run_id}`")
        raise typer.Exit(FAILED) from None
    if as_json:
        print_json(run_document(view))
    raise_unless_finished(view)
    say("the sites now write their results; read them at each site with `dcfpca-participant results`")
    if view.HasField("verdict"):
        for line in (view.verdict.sentence, *view.verdict.notes):
            say(line)
        if any(COUNTED in line for line in (view.verdict.sentence, *view.verdict.notes)):
            say(
                "this run does not know the names of its features: `dcfpca init spec` writes a spec that names them "
                "for the next run"
            )
        say(f"next: {view.verdict.advice}")
