"""Assembles the sources of the site: the pages of docs/, those that live elsewhere in the repository, and llms.txt.

usage: python -m docs.site.assemble BUILD

Pages stay plain Markdown that reads well in the repository. Here links between them are led to the pages' places on the
site, links to other files of the repository become their paths, and the shelves of index.md become the navigation.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from docs.messages import messages
from docs.site.state_svg import replace_diagrams

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ELSEWHERE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "certs/README.md": "certificates.md",
    "deploy/RUNBOOK.md": "runbook.md",
    "examples/README.md": "examples.md",
    "README.md": "overview.md",
    "docs/messages.py": "messages.md",
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
_PICTURE = re.compile(
    r'<picture>.*?srcset="docs/(?P<dark>[^"]+)".*?src="docs/(?P<light>[^"]+)".*?alt="(?P<alt>[^"]*)".*?</picture>',
    re.DOTALL,
)
_SHELF = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def main(build: Path) -> None:
    """Write the sources below `build`/site-source; what was there before is deleted."""
    out = build / "site-source"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(DOCS / "figures", out / "figures")
    shutil.copytree(
        DOCS / "site",
        out,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__", "assemble.py", "state_svg.py"),
    )
    for path, place in _pages():
        text = messages() if path.endswith(".py") else (ROOT / path).read_text(encoding="utf-8")
        text = _relinked(text, PurePosixPath(path), place)
        target = out / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_with_navigation(text) if place == "index.md" else replace_diagrams(text), encoding="utf-8")
    (out / "llms.txt").write_text(_for_language_models(out), encoding="utf-8")


def _pages() -> Iterator[tuple[str, str]]:
    """Each page: its path in the repository, and its place on the site."""
    for page in sorted(DOCS.glob("**/*.md")):
        yield str(page.relative_to(ROOT)), str(page.relative_to(DOCS))
    yield from ELSEWHERE.items()


def _relinked(text: str, path: PurePosixPath, place: str) -> str:
    pages = {**dict(_pages()), "docs/site/api.rst": "api.rst"}

    def link(found: re.Match[str]) -> str:
        image, words, target, anchor = found[1], found[2], found[3], found[4] or ""
        wanted = _normal(path.parent / target)
        up = "../" * place.count("/")
        if wanted in pages:
            return f"{image}[{words}]({up}{pages[wanted]}{anchor})"
        if wanted.startswith("docs/figures/"):
            return f"{image}[{words}]({up}{wanted.removeprefix('docs/')})"
        return words if wanted in words or words.startswith("`") else f"{words} (`{wanted}`)"

    text = _PICTURE.sub(_two_shades, text)
    return _LINK.sub(link, text)


def _two_shades(found: re.Match[str]) -> str:
    """A picture by the reader's colours, as the theme shows one of two."""
    return "\n".join(
        f":::{{image}} {found[name]}\n:class: only-{name}\n:alt: {found['alt']}\n:::" for name in ("light", "dark")
    )


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _with_navigation(index: str) -> str:
    """The index, with a shelf of the navigation for each of its sections."""
    shelves = [":::{toctree}\n:hidden:\n\nOverview <overview>\n:::\n"]
    for title, body in _SHELF.findall(index):
        pages = dict.fromkeys(re.findall(r"^- \[([^\]]+)\]\(([\w/-]+)\.(?:md|rst)\)", body, re.MULTILINE))
        entries = "\n".join(f"{words} <{name}>" for words, name in pages)
        shelves.append(f":::{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}\n:::\n")
    return index + "\n" + "\n".join(shelves)


def _for_language_models(out: Path) -> str:
    """llms.txt: what the site is and what each page is about, in Markdown."""
    index = (out / "index.md").read_text(encoding="utf-8")
    lead = next(part for part in index.split("\n\n")[1:] if not part.startswith("#"))
    lines = ["# dcfpca", "", "> " + " ".join(lead.split()), ""]
    for title, body in _SHELF.findall(index.split(":::{toctree}")[0]):
        lines += [f"## {title}", ""]
        for words, name in dict.fromkeys(re.findall(r"\[([^\]]+)\]\(([\w/-]+)\.(?:md|rst)\)", body)):
            about = re.search(rf"\({re.escape(name)}\.(?:md|rst)\)[:,]? ?(.*)", body)
            told = re.sub(r"\]\([^)]*\)|\[", "", about[1]).strip() if about else ""
            lines.append(f"- [{words}]({name}.html)" + (f": {told}" if told else ""))
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
