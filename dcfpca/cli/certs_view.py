"""How `dcfpca certs` speaks: results as lines or one JSON document, errors as a sentence and a hint."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import ParamSpec

import typer
from cryptography import x509
from rich.console import Console
from rich.table import Table

from dcfpca.errors import DcfpcaError
from dcfpca.identity import fingerprint
from dcfpca.pki.authority import consortium_of
from dcfpca.pki.index import Index, Record
from dcfpca.pki.trust import days_left

P = ParamSpec("P")
# Enough digits to tell certificates apart on one screen, and for `revoke` to accept; --json has them all.
_SHORT = 12


def speaks_plainly(command: Callable[P, None]) -> Callable[P, None]:
    """Turn our errors into `error:` and `hint:` on stderr and exit code 1."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except DcfpcaError as error:
            typer.echo(f"error: {error}", err=True)
            if error.hint:
                typer.echo(f"hint: {error.hint}", err=True)
            raise typer.Exit(1) from error

    return run


def report(as_json: bool, document: Mapping[str, object], lines: Iterable[str]) -> None:
    """Print the result, as one JSON document or as lines for people."""
    typer.echo(json.dumps(document, indent=1) if as_json else "\n".join(lines))


def certificate_document(record: Record, now: datetime) -> dict[str, object]:
    """What `--json` says about one certificate."""
    identity = record.speaks_for()
    return {
        "identity": record.identity,
        "role": str(identity.role),
        "name": identity.name,
        "serial": record.serial,
        "fingerprint": record.fingerprint,
        "key_fingerprint": record.key,
        "not_before": record.not_before,
        "not_after": record.not_after,
        "days_left": round(_days(record, now), 1),
        "revoked": bool(record.revoked),
        "revoked_at": record.revoked or None,
        "reason": record.reason or None,
    }


def print_list(as_json: bool, ca: x509.Certificate, index: Index, now: datetime) -> None:
    """Print the CA and every certificate it has signed."""
    left = days_left(ca, now)
    if as_json:
        authority = {"fingerprint": fingerprint(ca), "days_left": round(left, 1)}
        lines = [certificate_document(record, now) for record in index.records]
        document = {"consortium": consortium_of(ca), "ca": authority, "certificates": lines}
        typer.echo(json.dumps(document, indent=1))
        return
    title = f"{consortium_of(ca)}: CA with {left:.0f} days left"
    table = Table("name", "role", "days left", "serial", "fingerprint", "state", title=title)
    for record in index.records:
        table.add_row(*_row(record, now))
    Console().print(table)


def _row(record: Record, now: datetime) -> tuple[str, ...]:
    identity = record.speaks_for()
    days = f"{_days(record, now):.0f}"
    return identity.name, identity.role, days, record.serial[:_SHORT], record.fingerprint[:_SHORT], _state(record, now)


def _state(record: Record, now: datetime) -> str:
    if record.revoked:
        return "revoked"
    return "valid" if record.is_live(now) else "expired"


def _days(record: Record, now: datetime) -> float:
    return (datetime.fromisoformat(record.not_after) - now) / timedelta(days=1)
