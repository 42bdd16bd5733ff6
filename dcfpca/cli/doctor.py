"""`dcfpca doctor`: checks the operator's files, this machine, and the way to the aggregator."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import grpc

from dcfpca.cli.connection_options import with_settings
from dcfpca.cli.runs import Json
from dcfpca.doctor import CheckResult, Level, fail, ok, worst
from dcfpca.doctor.checks import check_aggregators, check_credentials, check_directory
from dcfpca.identity import Role
from dcfpca.operator.client import Operator, explain
from dcfpca.operator.connection import ConnectionSettings, serving_channel
from dcfpca.pki.credential_files import Credentials
from dcfpca.text.console import report_checks


@with_settings
def doctor(settings: ConnectionSettings, as_json: Json = False) -> None:
    """Check files, disk, network, TLS, clock, version and permission, with remedies. Exit 1 if any check fails."""
    report_checks(list(check_operator(settings)), as_json)


def check_operator(settings: ConnectionSettings) -> Iterator[CheckResult]:
    """All checks, local ones first. Unusable credentials end them; the network cannot be checked without any."""
    files = settings.files
    own, found = check_credentials(files.ca, files.cert, files.key, Role.OPERATOR, datetime.now(UTC))
    yield from found
    yield from check_directory("disk", Path.cwd())
    if own is None:
        return
    reached = list(check_aggregators(settings.addresses, files, own))
    yield from reached
    if worst(reached) is not Level.FAIL:
        yield _check_permission(settings, own)


def _check_permission(settings: ConnectionSettings, own: Credentials) -> CheckResult:
    with serving_channel(settings, own) as channel:
        try:
            participants = Operator(channel, settings.address, own.identity).participants()
        except grpc.RpcError as error:
            return fail("operator", explain(error, settings.address, settings.files))
    connected = sum(one.state == "connected" for one in participants)
    return ok("operator", f"the aggregator admits this operator; {connected} participants are connected")
