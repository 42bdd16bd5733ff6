"""`dcfpca run`, whole: the commands of `runs`, and those that have files of their own."""

from __future__ import annotations

from dcfpca.cli.audit import audit
from dcfpca.cli.export import export
from dcfpca.cli.report import report
from dcfpca.cli.runs import app

app.command()(export)
app.command()(report)
app.command()(audit)
