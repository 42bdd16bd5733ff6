"""`dcfpca doctor`: everything between this operator and the aggregator, one line each, with the remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import grpc
import typer
from rich.text import Text

from dcfpca.cli.runs import Json
from dcfpca.doctor import Finding, Level, fail, ok, worst
from dcfpca.doctor.local_checks import check_credentials, check_directory
from dcfpca.doctor.network_checks import check_network
from dcfpca.identity import Role
from dcfpca.operator.client import Operator
from dcfpca.operator.connection import Settings, channel_to, configured
from dcfpca.operator.status_errors import explain
from dcfpca.pki import Credentials
from dcfpca.text.console import FAILED, add_row, print_json, show, table

_COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


@configured
def doctor(settings: Settings, as_json: Json = False) -> None:
    """Look at everything between this operator and the aggregator. Exit 1 if anything fails."""
    conclude(list(examine(settings)), as_json)


def examine(settings: Settings) -> Iterator[Finding]:
    """All checks of an operator, from the inside outwards."""
    files = settings.files
    own, found = check_credentials(files.ca, files.cert, files.key, Role.OPERATOR, datetime.now(UTC))
    yield from found
    yield from check_directory("disk", Path.cwd())
    if own is None:
        return
    reached = list(check_network(settings.address, files, own))
    yield from reached
    if worst(reached) is not Level.FAIL:
        yield _permitted(settings, own)


def _permitted(settings: Settings, own: Credentials) -> Finding:
    with channel_to(settings.address, own) as channel:
        try:
            there = Operator(channel, settings.address, own.identity).participants()
        except grpc.RpcError as error:
            return fail("operator", explain(error, settings.address, settings.files))
    connected = sum(one.state == "connected" for one in there)
    return ok("operator", f"the aggregator lets this operator in; {connected} participants are connected")


def conclude(findings: Sequence[Finding], as_json: bool = False) -> None:
    """Show the lines, and leave with 1 if one of them says fail."""
    if as_json:
        print_json({"verdict": worst(findings).value, "findings": [asdict(finding) for finding in findings]})
    else:
        made = table("", "", "")
        made.show_header = False
        for one in findings:
            add_row(made, Text(one.level.value, style=_COLOURS[one.level]), one.what, one.sentence)
            if one.remedy:
                add_row(made, "", "", Text(f"→ {one.remedy}", style="italic"))
        show(made)
    if worst(findings) is Level.FAIL:
        raise typer.Exit(FAILED)
