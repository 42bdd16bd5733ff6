"""`dcfpca doctor`: checks everything between this operator and the aggregator."""

from __future__ import annotations

from dcfpca.cli.connection_options import with_settings
from dcfpca.cli.runs import Json
from dcfpca.doctor.operator_checks import check_operator
from dcfpca.operator.connection import ConnectionSettings
from dcfpca.text.check_report import report_checks


@with_settings
def doctor(settings: ConnectionSettings, as_json: Json = False) -> None:
    """Check files, disk, network, TLS, clock, version and permission, with remedies. Exit 1 if any check fails."""
    report_checks(list(check_operator(settings)), as_json)
