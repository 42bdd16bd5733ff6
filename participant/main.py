"""The `dcfpca-participant` command.

Each command imports what it needs when it is called: the numerics take a second that `--help` and `ledger` need not.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dcfpca import logs
from dcfpca.errors import BadInput, Refused, UnusableState
from dcfpca.run_references import find_run
from dcfpca.text.command_runner import EXIT_CODES, FOUND, run_command
from dcfpca.text.console import print_json, result, say
from dcfpca.version import __version__

if TYPE_CHECKING:
    from participant.config import Config
    from participant.state.store import Store

app = typer.Typer(name="dcfpca-participant", no_args_is_help=True, pretty_exceptions_enable=False)

ConfigOption = Annotated[
    Path, typer.Option("--config", help="The participant's configuration.", envvar="DCFPCA_PARTICIPANT_CONFIG")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
RunOption = Annotated[str, typer.Option("--run", help="Only this run: its identifier, the beginning, or `latest`.")]


@app.callback(
    invoke_without_command=True,
    help=f"The daemon of a site, and what it keeps: ledger, results, approvals. {EXIT_CODES}",
)
def common(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    """The participant's daemon, its state and its results. Exit codes: 0 done, 1 refused or failed, 2 misuse."""
    if version:
        result(f"dcfpca-participant {__version__}")
        raise typer.Exit


@app.command()
def serve(
    config: ConfigOption = Path("participant.toml"),
    log_format: Annotated[str, typer.Option("--log-format", help="human or json; by default as configured.")] = "",
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "",
) -> None:
    """Take part in runs until stopped."""
    if log_format not in ("", "human", "json"):
        raise typer.BadParameter("human or json", param_hint="--log-format")
    if log_level not in ("", "debug", "info", "warning", "error"):
        raise typer.BadParameter("debug, info, warning or error", param_hint="--log-level")
    if log_format == "json":  # of a configuration that cannot be read, too
        logs.setup_service("json", log_level or "info")
    settings = _settings(config)
    as_json = (log_format or settings.telemetry.log_format) == "json"
    logs.setup_service("json" if as_json else "human", log_level or settings.telemetry.log_level)
    import asyncio

    from dcfpca.freed_memory import keep_freed_memory
    from participant.daemon import serve as serve_daemon

    keep_freed_memory()
    asyncio.run(serve_daemon(settings))


@app.command()
def check(
    config: ConfigOption = Path("participant.toml"),
    spec: Annotated[
        Path | None, typer.Option("--spec", help="Say whether the site would join a run with this spec, and its cost.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Load configuration, credentials and data, and show how the site would take part."""
    from participant.commands.check import budget_of, cost_remarks, read_spec, show_site, site_document
    from participant.local_site import open_site

    settings = _settings(config)
    site = open_site(settings, make_key=False)
    budget = budget_of(settings, site)
    of_spec = cost_remarks(read_spec(spec, site), settings, site, budget) if spec else []
    if as_json:
        print_json(site_document(settings, site, budget, of_spec))
    else:
        show_site(settings, site, budget, of_spec)


@app.command()
def doctor(config: ConfigOption = Path("participant.toml"), as_json: JsonOption = False) -> None:
    """Check files, data, policy, disk and the connection to the aggregator. Exit 1 if anything fails."""
    from dcfpca.text.console import report_checks
    from participant.commands.doctor import examine

    report_checks(list(examine(_settings(config))), as_json)


@app.command()
def ledger(
    config: ConfigOption = Path("participant.toml"),
    run: RunOption = "",
    verify_chain: Annotated[bool, typer.Option("--verify", help="Check the hash chain of the whole ledger.")] = False,
    seen: Annotated[
        Path | None,
        typer.Option(help="With --verify: your checkpoint file, compared and then updated. Created if missing."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="List every entry instead of one line per kind of message.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what has left this site."""
    from participant.commands.ledger import ledger_document, show_ledger
    from participant.state.database import open_database, run_names
    from participant.state.ledger import Ledger, verify

    if seen and not verify_chain:
        raise BadInput("--seen needs a verified ledger to compare with the checkpoint", "add --verify")
    # Not the whole store, which loads the numerics for what the rounds left.
    database = open_database(_database_file(config))
    kept, run = Ledger(database), find_run(run, run_names(database)) if run else ""
    verified = verify(kept.entries()) if verify_chain else None
    if seen:
        from dcfpca.wire.audit_chain import save_checkpoint, verify_checkpoint

        hashes = {entry.sequence: entry.hash for entry in kept.entries()}
        save_checkpoint(seen, verify_checkpoint(seen, hashes, "the ledger"))
    entries = list(kept.entries(run))
    if run and not entries:
        raise Refused(f"the ledger has no entry of a run {run}", "`dcfpca-participant ledger --all` lists every entry")
    if as_json:
        print_json(ledger_document(entries, verified))
    else:
        show_ledger(entries, verified, every=every)


@app.command()
def results(
    config: ConfigOption = Path("participant.toml"),
    run: RunOption = "",
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write an HTML report of the run (the latest unless --run is given)."),
    ] = None,
    image: Annotated[
        str, typer.Option("--image", help="Features are pixels: draw images of height x width, such as 60x80.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace the report if it exists.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the verdict and the worst findings of the latest run, and list finished runs and their files."""
    from dcfpca.report.page import write_report
    from participant.commands.results import build_report, show_results
    from participant.findings.decisions import known_decisions
    from participant.results.reading import read_manifests

    settings = _settings(config)
    every = read_manifests(settings.results.dir)
    run = _finished(every, run)
    manifests = [found for found in every if run in ("", found["run"])]
    if run and not manifests:
        raise Refused(f"there is no result of run {run} in {settings.results.dir}", "see `dcfpca-participant results`")
    if report is not None:
        if not manifests:
            raise Refused(f"there are no results in {settings.results.dir} yet", "wait for a run to finish")
        write_report(report, build_report(settings, manifests[-1], image), force=force)
    if as_json:
        print_json({"results": list(manifests)})
    else:
        show_results(settings.results.dir, manifests, known_decisions(settings.state.dir))


@app.command()
def compare(
    earlier: Annotated[
        str, typer.Argument(metavar="EARLIER", help="A finished run: its identifier, or the beginning.")
    ],
    later: Annotated[str, typer.Argument(metavar="LATER", help="The run to compare with it, or `latest`.")] = "latest",
    config: ConfigOption = Path("participant.toml"),
    as_json: JsonOption = False,
) -> None:
    """Say what changed from one run to another: subspace, centres and scales, and the findings that came and went."""
    from participant.commands.compare import compare as compare_runs
    from participant.commands.compare import show_comparison
    from participant.results.reading import read_manifests

    results_dir = _settings(config).results.dir
    every = read_manifests(results_dir)
    runs = [_finished(every, run) for run in (earlier, later)]
    for run in runs:
        if run not in [manifest["run"] for manifest in every]:
            raise Refused(f"there is no result of run {run} in {results_dir}", "see `dcfpca-participant results`")
    found = compare_runs(results_dir, *runs)
    print_json(found) if as_json else show_comparison(found)


@app.command()
def approve(
    run: Annotated[str, typer.Argument(help="The run to approve; without it, list those that wait.")] = "",
    by: Annotated[str, typer.Option("--by", help="Who approves; kept in the ledger.")] = "",
    expires: Annotated[str, typer.Option(help="How long the approval is in force: 7d, 12h or 30m.")] = "7d",
    like: Annotated[
        str,
        typer.Option(
            "--like",
            help="Also approve later runs with the same spec, for this long: 90d. If there is a doubt about one, a "
            "person is still asked.",
        ),
    ] = "",
    ended: Annotated[str, typer.Option("--end-like", metavar="RUN", help="End the approval of runs like this.")] = "",
    config: ConfigOption = Path("participant.toml"),
    as_json: JsonOption = False,
) -> None:
    """Approve a run that waits for a person at the site, once. Approvals and their use are in the ledger."""
    from participant.commands.approve import (
        approval_document,
        approve_run,
        end_like,
        show_waiting,
        waiting_document,
        waiting_runs,
    )

    store, now_ms = _store(config), time.time_ns() // 1_000_000
    if ended:
        end_like(store, ended, by, now_ms)
    waiting = waiting_runs(store, now_ms)
    if not run:
        standing = store.approvals.standing(now_ms), store.approvals.likes(now_ms)
        print_json(waiting_document(waiting, *standing)) if as_json else show_waiting(waiting, *standing)
        return
    run = find_run(run, [row.run_id for row in reversed(waiting)])
    reasons = [reason for row in waiting if row.run_id == run for reason in row.reasons]
    approval = approve_run(store, run, by, expires, now_ms, like)
    if as_json:
        print_json({"approved": run, **approval_document(approval)})
    else:
        although = f", although {'; '.join(reasons)}" if reasons else ""
        say(f"run {run} is approved {approval.describe()}{although}; the daemon goes on within seconds")


@app.command()
def console(
    config: ConfigOption = Path("participant.toml"),
    port: Annotated[int, typer.Option(help="The port on this machine's loopback address.", min=1024, max=65535)] = 7481,
) -> None:
    """Show proposals, runs, findings and the ledger on a page for the people of this site, and take their decisions."""
    from participant.config import require_console

    require_console()
    from dcfpca.web_server import loopback
    from participant.console.app import LINK, Console
    from participant.console.app import serve as serve_console

    settings = _settings(config)
    if settings.console.listen and (kept := settings.state.dir / LINK).exists():
        result(f"open this link, which works once: {kept.read_text(encoding='utf-8').strip()}")
        say("the daemon serves it, for this machine alone")
        return
    listener, made = loopback(port), Console(settings, _store(config), port)
    result(f"open this link, which works once: {made.gate.link}")
    say("the page is for this machine alone; stop it with Ctrl-C")
    serve_console(made, listener, port)


@app.command()
def decisions(
    out: Annotated[Path, typer.Option("--out", help="The file to write: .csv or .parquet.")],
    config: ConfigOption = Path("participant.toml"),
) -> None:
    """Export what was decided about findings: id, feature, value, decision, who, when, note, run."""
    from participant.findings.decisions import Decisions

    if out.exists() or out.suffix not in (".csv", ".parquet"):
        raise BadInput(f"{out} exists, or is neither .csv nor .parquet", "name another file")
    count = Decisions(_database_file(config).parent).export(out)
    say(f"{count} decisions are in {out}")


@app.command()
def reject(
    run: Annotated[str, typer.Argument(help="The run to decline.")],
    by: Annotated[str, typer.Option("--by", help="Who declines; kept in the ledger, and not sent.")] = "",
    reason: Annotated[str, typer.Option("--reason", help="Why; the operator reads it.")] = "",
    config: ConfigOption = Path("participant.toml"),
) -> None:
    """Decline a run that waits for a person at the site. Who declined, and why, is in the ledger."""
    from participant.commands.approve import decline_run, waiting_runs

    store, now_ms = _store(config), time.time_ns() // 1_000_000
    run = find_run(run, [row.run_id for row in reversed(waiting_runs(store, now_ms))])
    said = decline_run(store, run, by, reason, now_ms)
    say(f"run {run} is declined; the daemon tells the operator within seconds: {said}")


@app.command()
def transform(
    run: Annotated[str, typer.Option("--run", help="The finished run whose model to use.")],
    source: Annotated[Path, typer.Option("--input", help="New samples, in a file laid out like this site's data.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Directory for the result; by default where the console finds it."),
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write an HTML report, as of a run.")] = None,
    config: ConfigOption = Path("participant.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace the report if it exists.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Clean and score new samples with the model of a finished run. Exit code 3 if anything is flagged."""
    from dcfpca.report.page import write_report
    from participant.commands.results import build_report
    from participant.commands.transform import SCORED, of_source, show_transform
    from participant.commands.transform import transform as transform_columns
    from participant.findings.decisions import known_decisions
    from participant.results.reading import read_manifest, read_manifests

    settings = _settings(config)
    run = _finished(read_manifests(settings.results.dir), run)
    target = out or settings.results.dir / run / SCORED / source.stem
    found = transform_columns(settings, run, source, target)
    if report is not None:
        text = build_report(of_source(settings, source), read_manifest(target), scored=target)
        write_report(report, text, force=force)
    print_json(found) if as_json else show_transform(found, target, known_decisions(settings.state.dir))
    if found["outliers"] or found.get("flagged_samples") or found["broken_rules"]:
        raise typer.Exit(FOUND)


def _finished(manifests: Sequence[dict[str, Any]], run: str) -> str:
    """The finished run that `run` means; empty if it is."""
    return find_run(run, [found["run"] for found in reversed(manifests)])


def _settings(config: Path) -> Config:
    from participant.config import load_config

    return load_config(config)


def _store(config: Path) -> Store:
    """The site's state; a running daemon may be writing to it at the same time."""
    from participant.state.store import Store

    return Store(_database_file(config).parent, _settings(config).results.dir)


def _database_file(config: Path) -> Path:
    """The database in the site's state, which must exist."""
    from participant.state.database import DATABASE

    settings = _settings(config)
    if not (settings.state.dir / DATABASE).exists():
        hint = "start the daemon once with `dcfpca-participant serve`"
        raise BadInput(f"there is no state in {settings.state.dir} yet", hint)
    return settings.state.dir / DATABASE


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point of `dcfpca-participant`."""
    run_command(app, arguments, _explain)


def _explain(error: Exception) -> UnusableState | None:
    if not isinstance(error, sqlite3.DatabaseError):
        return None
    hint = "move [state] dir away and start with an empty one; never put back an old copy (deploy/RUNBOOK.md)"
    return UnusableState(f"the site's state cannot be used: {error}", hint)


if __name__ == "__main__":
    main()
