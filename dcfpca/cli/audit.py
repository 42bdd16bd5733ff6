"""`dcfpca run audit`: shows who did what in a run, and verifies the aggregator's audit log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dcfpca.chain_checkpoint import ChainCheckpoint, save_checkpoint, verify_checkpoint
from dcfpca.cli.connection_options import with_settings
from dcfpca.cli.runs import Json, Run
from dcfpca.errors import BadInput, Refused
from dcfpca.operator.audit_verification import verify_audit_log
from dcfpca.operator.connection import ConnectionSettings, connected
from dcfpca.pki import load_certificates
from dcfpca.run_references import find_run, is_whole
from dcfpca.text.console import Json as JsonValue
from dcfpca.text.console import add_row, moment, print_json, say, show, table
from dcfpca.v1 import admin_pb2 as pb


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
        print_json(document(run, checked, own, entries[-1]))
        return
    if checked is not None:
        say(f"the log is complete: {checked} entries, each chained to the previous one and signed by the aggregator")
        say(f"its last entry is {ChainCheckpoint(entries[-1].sequence, entries[-1].hash)}")
    _show(own)


def document(run: str, checked: int | None, own: Sequence[pb.AuditEntry], last: pb.AuditEntry) -> dict[str, JsonValue]:
    """The document of `--json`. `head`, the last entry of the log, is null unless the whole log was verified."""
    head: JsonValue = None if checked is None else {"sequence": last.sequence, "hash": last.hash.hex()}
    return {"run_id": run, "verified": checked, "head": head, "entries": [_document(entry) for entry in own]}


def _document(entry: pb.AuditEntry) -> dict[str, JsonValue]:
    return {
        "sequence": entry.sequence,
        "at": moment(entry.at_ms),
        "actor": entry.actor,
        "action": entry.action,
        "detail": entry.detail,
        "hash": entry.hash.hex(),
    }


def _show(entries: Sequence[pb.AuditEntry]) -> None:
    made = table("#", "at", "action", "actor", "detail")
    for entry in entries:
        detail = "" if entry.detail == "{}" else entry.detail
        add_row(made, str(entry.sequence), moment(entry.at_ms), entry.action, entry.actor, detail)
    show(made)
