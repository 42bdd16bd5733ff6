"""How the command speaks: results on stdout, everything else on stderr, colour only on a terminal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dcfpca.errors import BadInput, DcfpcaError

DONE, FAILED, MISUSED = 0, 1, 2
"""Exit codes: done; refused or failed; the command line, a config or a spec is wrong."""

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def stderr() -> Console:
    """Where speech goes. Made anew each time, so that it follows a redirected stream."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def plain(text: str) -> str:
    """The text without what could move a terminal's cursor or colour: sites and operators chose some of its words."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign == "\n" else "\N{REPLACEMENT CHARACTER}" for sign in text)


def say(text: str) -> None:
    """One line for the person at the terminal."""
    stderr().print(plain(text), markup=False)


def result(text: str) -> None:
    """One line of result on stdout."""
    sys.stdout.write(f"{plain(text)}\n")


def show(renderable: RenderableType) -> None:
    """A table or other picture on stdout; without a terminal it is as wide as it needs to be."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=240)
    console.print(renderable)


def print_json(document: Json) -> None:
    """The one JSON document of `--json`. NaN and infinity, which JSON does not know, become null."""
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


def report_error(error: DcfpcaError) -> int:
    """Say what is wrong and what to do; returns the exit code."""
    console = stderr()
    console.print("[bold red]error:[/] ", end="")
    console.print(plain(str(error)), markup=False)
    if error.hint:
        console.print("[bold]hint:[/] ", end="")
        console.print(plain(error.hint), markup=False)
    return MISUSED if isinstance(error, BadInput) else FAILED


def table(*headings: str) -> Table:
    """A table in the house's look; headings that begin with `#` are numbers, set to the right."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        made.add_column(heading.removeprefix("#"), justify="right" if heading.startswith("#") else "left")
    return made


def add_row(made: Table, *cells: str | Text | None) -> None:
    """Add a row of literal texts: what sites and operators wrote is never read as markup."""
    made.add_row(*(cell if isinstance(cell, Text) else Text(plain(cell or "")) for cell in cells))


def moment(milliseconds: int) -> str | None:
    """A Unix time in milliseconds as ISO 8601 in UTC; 0 is no time."""
    if not milliseconds:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def span(seconds: float) -> str:
    """A duration for people."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def figure(value: float) -> str:
    """A measured number for people; a dash where there is none."""
    return f"{value:.2g}" if math.isfinite(value) else "–"
