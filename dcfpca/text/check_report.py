"""Prints the results of `doctor`, for the operator's command and the participant's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import typer
from rich.text import Text

from dcfpca.doctor import CheckResult, Level, worst
from dcfpca.text.command_runner import FAILED
from dcfpca.text.console import add_row, print_json, show, table

_COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def report_checks(results: Sequence[CheckResult], as_json: bool = False) -> None:
    """Print one line per check, with its remedy; leave with exit code 1 if any check failed."""
    if as_json:
        print_json({"verdict": worst(results).value, "findings": [asdict(result) for result in results]})
    else:
        _show(results)
    if worst(results) is Level.FAIL:
        raise typer.Exit(FAILED)


def _show(results: Sequence[CheckResult]) -> None:
    made = table("", "", "")
    made.show_header = False
    for one in results:
        add_row(made, Text(one.level.value, style=_COLOURS[one.level]), one.what, one.sentence)
        if one.remedy:
            add_row(made, "", "", Text(f"→ {one.remedy}", style="italic"))
    show(made)
