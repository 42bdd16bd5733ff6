"""`dcfpca run report`: one HTML file that shows what happened in a run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from dcfpca.cli.runs import Run
from dcfpca.errors import BadInput
from dcfpca.operator.client import Operator
from dcfpca.operator.connection import operates
from dcfpca.report.run import run_report
from dcfpca.text.console import result


@operates
def report(
    operator: Operator,
    run: Run,
    out: Annotated[Path, typer.Option("--out", help="The HTML file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Write a self-contained HTML report: convergence, singular values, times, bytes, dropouts, spec, consent."""
    text = run_report(operator.run(run), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    write_report(out, text, force=force)
    result(str(out))


def write_report(out: Path, text: str, *, force: bool) -> None:
    """Put the file there whole or not at all; raises BadInput when it must not or cannot be written."""
    if out.exists() and not force:
        raise BadInput(f"{out} exists already", "name another file, or replace it with --force")
    partial = out.with_name(f".{out.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        # It shows data of a site: for this user alone, like the results that it is made of.
        partial.touch(mode=0o600, exist_ok=False)
        partial.write_text(text, encoding="utf-8")
        partial.replace(out)
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error.strerror}", "check the directory of --out") from error
