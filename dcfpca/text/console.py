"""Console output: results on stdout, messages on stderr, colour only on a terminal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dcfpca.doctor import CheckResult, Level, worst
from dcfpca.errors import DcfpcaError
from dcfpca.text.command_runner import FAILED

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def stderr() -> Console:
    """The console for messages. Created at each call, so that it follows a redirected `sys.stderr`."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def plain(text: str) -> str:
    """The text with control characters replaced: peers write parts of it, and must not drive the reader's terminal."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign == "\n" else "\N{REPLACEMENT CHARACTER}" for sign in text)


def say(text: str) -> None:
    """Print one line of message on stderr."""
    stderr().print(plain(text), markup=False)


def result(text: str) -> None:
    """Print one line of result on stdout."""
    sys.stdout.write(f"{plain(text)}\n")


def show(renderable: RenderableType) -> None:
    """Print a table or other renderable on stdout; without a terminal it is not wrapped at 80 columns."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=240)
    console.print(renderable)


def print_json(document: Json) -> None:
    """Print the JSON document of `--json`. NaN and infinity, which JSON lacks, become null."""
    text = json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write((text if plain(text) == text else json.dumps(_finite(document), indent=2, allow_nan=False)) + "\n")


def _finite(value: Json) -> Json:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return value


def print_error(error: DcfpcaError) -> None:
    """Print the error and its hint on stderr."""
    console = stderr()
    console.print("[bold red]error:[/] ", end="")
    console.print(plain(str(error)), markup=False)
    if error.hint:
        console.print("[bold]hint:[/] ", end="")
        console.print(plain(error.hint), markup=False)


def table(*headings: str) -> Table:
    """An empty table without borders; a heading that begins with `#` is a right-aligned column of numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        made.add_column(heading.removeprefix("#"), justify="right" if heading.startswith("#") else "left")
    return made


def add_row(made: Table, *cells: str | Text | None) -> None:
    """Add a row of literal text: what sites and operators wrote is never parsed as markup."""
    made.add_row(*(cell if isinstance(cell, Text) else Text(plain(cell or "")) for cell in cells))


def moment(milliseconds: int) -> str | None:
    """A Unix time in milliseconds as ISO 8601 in UTC; 0 is no time."""
    if not milliseconds:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size(count: float) -> str:
    """A number of bytes with a decimal unit, such as 1.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def span(seconds: float) -> str:
    """A duration, such as 3.2 s or 2 min 05 s."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def figure(value: float) -> str:
    """A number with two significant digits; a dash for NaN and infinity."""
    return f"{value:.2g}" if math.isfinite(value) else "–"


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
