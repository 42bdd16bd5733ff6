"""The HTML page of a report with its style embedded, for screen, phone and print, light and dark; and its file."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

from dcfpca.errors import BadInput

# A report loads nothing, and runs no script but the one it was written with; every browser enforces this policy.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

# Control characters except tab and line feed, marks that change the direction of text, and lone surrogates.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape(text: str) -> str:
    """Text for HTML; characters that change how the text around them is displayed become escapes such as \\u202e."""
    return html.escape(_INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def _style() -> str:
    return resources.files("dcfpca.report").joinpath("style.css").read_text(encoding="utf-8")


def embedded_script(name: str) -> str:
    """A script of this package, for `page`."""
    return resources.files("dcfpca.report").joinpath(name).read_text(encoding="utf-8")


def page(title: str, parts: Iterable[str], script: str = "") -> str:
    """The whole file; the policy admits this script by its digest and no other."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"{_POLICY}; script-src 'sha256-{digest}'" if script else _POLICY
    code = f"<script>{script}</script>" if script else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{_style()}</style></head>\n"
        f"<body><main>\n{chr(10).join(parts)}\n</main>{code}</body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A part of the report under its heading."""
    return f"<section><h2>{escape(title)}</h2>\n{chr(10).join(parts)}\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f"<p{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{escape(text)}</p>"


def figure(drawing: str, caption: str = "") -> str:
    """A chart with its caption."""
    text = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{drawing}{text}</figure>"


def figures(pairs: Sequence[tuple[str, str]]) -> str:
    """The key figures at the top of a report."""
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="figures">{cells}</dl>'


def short_labels(names: Sequence[str], letters: int) -> list[str]:
    """The names, shortened to this many letters where they stay different: at the end, at the beginning or within."""
    half = (letters - 1) // 2
    for first, last in ((letters - 1, 0), (0, letters - 1), (half, half)):
        cut = [f"{name[:first]}…{name[len(name) - last :]}" if len(name) > letters else name for name in names]
        if len(set(cut)) == len(set(names)):
            return cut
    return list(names)


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, stacks: bool = False, searched: Sequence[str] = ()
) -> str:
    """A table of text cells; a heading that begins with `#` is a right-aligned column of numbers.

    One that `stacks` shows each line as a list on a narrow screen. `searched` is what a search of each line looks in.
    """
    kinds = [' class="n"' if heading.startswith("#") else "" for heading in headings]
    names = [heading.removeprefix("#") for heading in headings]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for kind, name in zip(kinds, names, strict=True))
    cells = [kind + (f' data-name="{escape(name)}"' if stacks else "") for kind, name in zip(kinds, names, strict=True)]
    marks = (f' data-text="{escape(text.lower())}"' for text in searched) if searched else itertools.repeat("")
    lines = ("".join(f"<td{cell}>{escape(text)}</td>" for cell, text in zip(cells, row, strict=True)) for row in rows)
    body = "".join(f"<tr{mark}>{line}</tr>" for mark, line in zip(marks, lines, strict=False))
    place = "scroll stacks" if stacks else "scroll"
    return f'<div class="{place}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def folded(summary: str, *parts: str) -> str:
    """A section that is collapsed until opened."""
    return f"<details><summary>{escape(summary)}</summary>{chr(10).join(parts)}</details>"


def status_badge(word: str) -> str:
    """A run's status as a coloured badge with its name."""
    return f'<span class="status {escape(word)}">{escape(word)}</span>'


def write_report(out: Path, text: str, *, force: bool) -> None:
    """Write `text` to `out` atomically; raises BadInput if it exists (unless `force`) or cannot be written."""
    if out.exists() and not force:
        raise BadInput(f"{out} exists already", "name another file, or replace it with --force")
    partial = out.with_name(f".{out.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        # It may show data of a site: readable by this user alone, like the results it is made of.
        partial.touch(mode=0o600, exist_ok=False)
        partial.write_text(text, encoding="utf-8")
        partial.replace(out)
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error.strerror}", "check the directory of --out") from error
