"""`dcfpca run report`: writes one HTML file about a run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from dcfpca.cli.connection_options import with_operator
from dcfpca.cli.runs import Run
from dcfpca.operator.client import Operator
from dcfpca.report.report_file import write_report
from dcfpca.report.run import run_report
from dcfpca.text.console import result


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
