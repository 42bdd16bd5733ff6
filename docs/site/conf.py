"""Settings of Sphinx for the documentation site. `make site` assembles the sources and builds them."""

from __future__ import annotations

import re
from typing import Any

from dcfpca.version import __version__

project = "dcfpca"
author = copyright = "the dcfpca authors"  # noqa: A001: the name that Sphinx reads
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns: list[str] = []

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
default_role = "code"  # docstrings write names in single backquotes
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
copybutton_prompt_text = "$ "

smartquotes = False  # options, labels and code must be read as they are typed

html_theme = "furo"
html_title = f"dcfpca {__version__}"
html_copy_source = False
html_show_sourcelink = False
html_extra_path = ["llms.txt"]
html_static_path = ["style"]
html_css_files = ["site.css"]
# Everything that a page needs is in the site: it is read offline and inside closed networks.
html_theme_options = {"sidebar_hide_name": False, "navigation_with_keys": True}
pygments_style, pygments_dark_style = "friendly", "monokai"


def _as_rst(app: Any, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Docstrings as they are written here: sections of `name : text`, and names that end in an underscore."""
    made: list[str] = []
    section = False
    for line, below in zip(lines, [*lines[1:], ""], strict=False):
        if below and set(below) == {"-"}:
            section = True
            made += [f"**{line}**", ""]
        elif line and set(line) == {"-"}:
            continue
        elif section and (found := re.match(r"([\w, ]+) : (.*)", line)):
            made += ["", f"``{found[1]}``", f"    {_escaped(found[2])}"]
        else:
            made.append(_escaped(line))
    lines[:] = made


def _escaped(line: str) -> str:
    """A word like `rank_` outside of backquotes is a word, and no reference."""
    parts = line.split("`")
    return "`".join(part if i % 2 else re.sub(r"(\w)_(?!\w)", r"\1\\_", part) for i, part in enumerate(parts))


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _as_rst)
