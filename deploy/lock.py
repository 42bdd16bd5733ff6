#!/usr/bin/env python3
"""Write deploy/requirements.lock: the versions installed here of all that dcfpca needs, with the hashes of their files.

usage: .venv/bin/python deploy/lock.py INDEX     INDEX: the address of a "simple" package index, which is not recorded

Only what the index offers under these hashes can get into the image, whichever index the image is built from.
"""

from __future__ import annotations

import html
import re
import sys
import urllib.request
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

ROOT = "dcfpca"
LOCK = Path(__file__).with_name("requirements.lock")
_LINK = re.compile(r'href="[^"#]*/([^/"#]+)#sha256=([0-9a-f]{64})"')


def needed(name: str, seen: set[str]) -> Iterator[str]:
    """Every distribution that `name` needs on this platform without extras, itself not included."""
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        wanted = canonicalize_name(requirement.name)
        if wanted in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(wanted)
        yield wanted
        yield from needed(wanted, seen)


def hashes(index: str, name: str, version: str) -> list[str]:
    """SHA-256 of every wheel and source archive of one version."""
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/") as page:  # noqa: S310 the index is the caller's choice
        links = _LINK.findall(html.unescape(page.read().decode()))
    return sorted({digest for file, digest in links if _version(file) == version})


def _version(file: str) -> str:
    try:
        if file.endswith(".whl"):
            return str(parse_wheel_filename(file)[1])
        return str(parse_sdist_filename(file)[1])
    except ValueError:
        return ""


def entry(index: str, name: str) -> str:
    """One requirement with its hashes, as pip reads it."""
    version = distribution(name).version
    found = hashes(index, name, version)
    if not found:
        raise SystemExit(f"error: the index has no file of {name} {version}")
    return f"{name}=={version} \\\n" + " \\\n".join(f"    --hash=sha256:{digest}" for digest in found) + "\n"


def main() -> None:
    """Write the file."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    head = "# Written by deploy/lock.py. The image is installed from exactly these files.\n"
    LOCK.write_text(head + "".join(entry(sys.argv[1], name) for name in sorted(needed(ROOT, {ROOT}))))


if __name__ == "__main__":
    main()
