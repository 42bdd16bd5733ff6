"""`dcfpca run audit`: who did what in a run, and whether the aggregator's log is whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from cryptography import x509

from dcfpca.audit_chain import verify_log
from dcfpca.chain_checkpoint import Head, check_seen, note_seen
from dcfpca.cli.runs import Json, Run
from dcfpca.errors import BadIdentity, BadInput, Refused
from dcfpca.identity import Role
from dcfpca.operator.connection import Settings, configured, connected
from dcfpca.pki import load_certificates, parse_certificate, verify, verify_peer
from dcfpca.text.console import Json as JsonValue
from dcfpca.text.console import add_row, moment, print_json, say, show, table
from dcfpca.v1 import admin_pb2 as pb


@configured
def audit(
    settings: Settings,
    run: Run,
    verified: Annotated[
        bool, typer.Option("--verify", help="Check the whole log's chain of hashes and every signature.")
    ] = False,
    seen: Annotated[
        Path | None,
        typer.Option(help="With --verify: a file of yours that notes how far the log has been seen. Made if missing."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show who did what in a run, from the aggregator's hash-chained, signed audit log; participants may, too."""
    if seen and not verified:
        raise BadInput("--seen compares a verified log with what was seen before", "add --verify")
    with connected(settings) as operator:
        entries = list(operator.audit("" if verified else run))
    checked = check(entries, load_certificates(settings.files.ca)) if verified else None
    if seen:
        note_seen(seen, check_seen(seen, {entry.sequence: entry.hash for entry in entries}, "the audit log"))
    own = [entry for entry in entries if entry.run_id == run]
    if not own:
        raise Refused(f"the audit log has no run {run!r}", "`dcfpca run list` shows an operator the runs there are")
    if as_json:
        print_json(document(run, checked, own, entries[-1]))
        return
    if checked is not None:
        say(f"the log is whole: {checked} entries, each chained to the one before and signed by the aggregator")
        say(f"its last entry is {Head(entries[-1].sequence, entries[-1].hash)}")
    _show(own)


def document(run: str, checked: int | None, own: Sequence[pb.AuditEntry], last: pb.AuditEntry) -> dict[str, JsonValue]:
    """What `--json` prints; `last` is the head of the log where all of it was read."""
    head: JsonValue = None if checked is None else {"sequence": last.sequence, "hash": last.hash.hex()}
    return {"run_id": run, "verified": checked, "head": head, "entries": [_document(entry) for entry in own]}


def check(entries: Iterable[pb.AuditEntry], authorities: Sequence[x509.Certificate]) -> int:
    """How many entries the log has; raises at the first that does not fit, or was not signed by an aggregator."""
    try:
        return verify_log(entries, lambda der, signature, data: _signed(der, signature, data, authorities))
    except BadIdentity as error:
        hint = "check --ca; if it is your consortium's, the log was not written by your aggregator"
        raise Refused(f"the audit log is signed by nobody we trust: {error}", hint) from error


def _signed(der: bytes, signature: bytes, data: bytes, authorities: Sequence[x509.Certificate]) -> bool:
    """Judged by the certificate's own time: one that has been renewed since still signed what it signed."""
    certificate = parse_certificate(der)
    when = min(datetime.now(UTC), certificate.not_valid_after_utc)
    _, key = verify_peer(der, authorities, frozenset(), Role.AGGREGATOR, when)
    return verify(key, signature, data)


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
