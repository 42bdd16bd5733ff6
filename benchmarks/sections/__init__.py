"""The sections of docs/results.md: each turns one data file under benchmarks/results into text, figures and "
"shortfalls."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True, slots=True)
class Section:
    """`short` are the plain sentences of what falls short; they are gathered at the end of the page."""

    title: str
    commands: tuple[str, ...]
    body: str
    short: tuple[str, ...] = ()


_NO_BREAK = "\0"
Renderer = Callable[[Path], Section | None]


def document(path: Path) -> Any:
    """A JSON document with its keys as attributes; None where nothing was measured."""
    if not path.exists():
        return None
    return json.loads(path.read_text(), object_hook=lambda keys: SimpleNamespace(**keys))


def lines(path: Path) -> list[dict[str, Any]]:
    """The documents of a file of JSON lines; none where nothing was measured."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    head = [headings, ["---"] * len(headings)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [*head, *rows])


def power(value: float | None, digits: int = 1) -> str:
    """A small number as people write it: 2.2e-5; a dash for none."""
    if value is None:
        return "–"
    if 100 <= abs(value) < 10_000:
        return f"{value:.0f}"
    if value == 0 or 0.01 <= abs(value) < 100:
        return f"{value:.{digits + 1}g}"
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def picture(name: str, about: str, kind: str = "svg") -> str:
    """A figure of docs/figures; the link leads to the SVG, where there is one."""
    return f"[![{about}](figures/{name}.png)](figures/{name}.{kind})"


def paragraphs(*parts: str) -> str:
    """Parts with an empty line between them, prose wrapped; empty ones are left out."""
    return "\n\n".join(part if part.startswith(("|", "[!", "    ")) else wrapped(part) for part in parts if part)


def wrapped(prose: str, indent: str = "") -> str:
    """Prose in lines of the house's width."""
    kept = re.sub(r" (?=\d+[.)] )", _NO_BREAK, prose)  # a line that begins with "1. " would be a list
    lines = textwrap.fill(kept, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace(_NO_BREAK, " ")
