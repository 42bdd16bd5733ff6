"""`dcfpca run export`, `report` and `audit`: the model, a page about the run, and who did what in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from cryptography import x509

from dcfpca.cli.connection_options import with_operator, with_settings
from dcfpca.cli.runs import Json, Run, app
from dcfpca.errors import BadIdentity, BadInput, Refused, Unreachable
from dcfpca.identity import Role
from dcfpca.operator.client import Operator
from dcfpca.operator.connection import ConnectionSettings, connected
from dcfpca.pki.keys import verify
from dcfpca.pki.trust import load_certificates, parse_certificate, verify_peer
from dcfpca.report.page import write_report
from dcfpca.report.run import run_report
from dcfpca.run_references import find_run, is_whole
from dcfpca.text.console import Json as JsonValue
from dcfpca.text.console import add_row, moment, print_json, result, say, show, size, table
from dcfpca.text.run_views import message_fields
from dcfpca.v1 import admin_pb2 as pb
from dcfpca.wire.audit_chain import ChainCheckpoint, save_checkpoint, verify_checkpoint, verify_log

if TYPE_CHECKING:
    from dcfpca.operator.downloads import SavedFile


@app.command()
@with_operator
def export(
    operator: Operator,
    run: Run,
    out: Annotated[Path, typer.Option(help="Directory to create; an existing one must be empty.")],
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for sites that have not answered.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Write U, the singular values and the reconstructions of public participants; name those who refuse."""
    from dcfpca.operator import downloads  # noqa: PLC0415  imports NumPy, which other commands must not wait for

    downloads.refuse_unless_empty(out)
    view = operator.run(run)
    if view.status != "finished":
        raise Refused(f"run {run} has not finished, it is {view.status}", f"`dcfpca run watch {run}` shows when it has")
    if not downloads.announces_export(view):
        say("the spec of this run did not announce exports, so no site is asked; only the model is written")
    exported = downloads.request_reconstructions(operator, view, wait)
    files, manifest = downloads.download_export(operator, view, exported, out)
    _show_export(out, exported, files, as_json)
    if as_json:
        print_json(manifest | {"out": str(out)})
    if exported.awaited:
        hint = "export again to another directory when they are back"
        raise Unreachable(f"no answer from {', '.join(exported.awaited)} within {wait:g} s", hint)


def _show_export(out: Path, exported: pb.ExportView, files: list[SavedFile], as_json: bool) -> None:
    for refusal in exported.refusals:
        say(f"{refusal.participant} refused: {'; '.join(refusal.reasons)}")
    if not as_json:
        for file in files:
            result(f"{out / file.name}  {size(file.size)}")


@app.command()
@with_operator
def compare(operator: Operator, earlier: Run, later: Run, as_json: Json = False) -> None:
    """Say how the subspace changed from one finished run to another; `dcfpca-participant compare` says more."""
    from dcfpca.operator.downloads import model_arrays  # noqa: PLC0415  imports NumPy
    from dcfpca.text.model_change import subspace_change  # noqa: PLC0415

    said = subspace_change(*(model_arrays(operator, run)[0] for run in (earlier, later)))
    if as_json:
        print_json({"earlier": earlier, "later": later, "subspace": said})
        return
    result(f"{earlier} → {later}: {said}")
    whose = "centres, scales and findings stay with the sites, because they are in the units of their data"
    say(f"{whose}: at each, `dcfpca-participant compare {earlier} {later}`")


@app.command()
@with_operator
def report(
    operator: Operator,
    run: Run,
    out: Annotated[Path, typer.Option("--out", help="The HTML file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a self-contained HTML report: convergence, singular values, times, bytes, dropouts, spec, consent."""
    text = run_report(operator.run(run), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    write_report(out, text, force=force)
    result(str(out))


@app.command()
@with_settings
def audit(
    settings: ConnectionSettings,
    run: Run,
    verified: Annotated[
        bool, typer.Option("--verify", help="Verify the hash chain of the whole log and every signature.")
    ] = False,
    seen: Annotated[
        Path | None,
        typer.Option(help="With --verify: your checkpoint file, compared and then updated. Created if missing."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show who did what in a run, from the aggregator's signed audit log. A participant's certificate suffices."""
    if seen and not verified:
        raise BadInput("--seen needs a verified log to compare with the checkpoint", "add --verify")
    with connected(settings) as operator:
        entries = list(operator.audit(run if is_whole(run) and not verified else ""))
    run = find_run(run, list(dict.fromkeys(entry.run_id for entry in reversed(entries) if entry.run_id)))
    checked = verify_audit_log(entries, load_certificates(settings.files.ca)) if verified else None
    if seen:
        save_checkpoint(
            seen, verify_checkpoint(seen, {entry.sequence: entry.hash for entry in entries}, "the audit log")
        )
    own = [entry for entry in entries if entry.run_id == run]
    if not own:
        raise Refused(f"the audit log has no entry of run {run!r}", "an operator lists the runs with `dcfpca run list`")
    if as_json:
        print_json(_audit_document(run, checked, own, entries[-1]))
        return
    if checked is not None:
        say(f"the log is complete: {checked} entries, each chained to the previous one and signed by the aggregator")
        say(f"its last entry is {ChainCheckpoint(entries[-1].sequence, entries[-1].hash)}")
    _show_entries(own)


def _audit_document(
    run: str, checked: int | None, own: Sequence[pb.AuditEntry], last: pb.AuditEntry
) -> dict[str, JsonValue]:
    """The document of `--json`. `head`, the last entry of the log, is null unless the whole log was verified."""
    head: JsonValue = None if checked is None else {"sequence": last.sequence, "hash": last.hash.hex()}
    listed = [message_fields(entry, "sequence at_ms actor action detail hash") for entry in own]
    return {"run_id": run, "verified": checked, "head": head, "entries": listed}


def _show_entries(entries: Sequence[pb.AuditEntry]) -> None:
    made = table("#", "at", "action", "actor", "detail")
    for entry in entries:
        detail = "" if entry.detail == "{}" else entry.detail
        add_row(made, str(entry.sequence), moment(entry.at_ms), entry.action, entry.actor, detail)
    show(made)


def verify_audit_log(entries: Iterable[pb.AuditEntry], authorities: Sequence[x509.Certificate]) -> int:
    """The number of entries; raises at the first one that breaks the chain or that no aggregator of ours signed."""
    try:
        return verify_log(entries, lambda der, signature, data: _is_signed(der, signature, data, authorities))
    except BadIdentity as error:
        hint = "check --ca; if it is your consortium's, the log was not written by your aggregator"
        raise Refused(f"the audit log is not signed by an aggregator of this CA: {error}", hint) from error


def _is_signed(der: bytes, signature: bytes, data: bytes, authorities: Sequence[x509.Certificate]) -> bool:
    """Checks an expired certificate as of its last valid moment: what it signed before it expired stays signed."""
    certificate = parse_certificate(der)
    when = min(datetime.now(UTC), certificate.not_valid_after_utc)
    _, key = verify_peer(der, authorities, frozenset(), Role.AGGREGATOR, when)
    return verify(key, signature, data)
