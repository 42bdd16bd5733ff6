#!/usr/bin/env python3
"""Write a lock: the versions installed here of all that dcfpca needs, or its build, with the hashes of their files.

usage: .venv/bin/python deploy/lock.py INDEX            deploy/requirements.lock: what dcfpca needs
       .venv/bin/python deploy/lock.py INDEX --build    deploy/build-requirements.lock: what its wheel is built with

INDEX is the address of a "simple" package index, which is not recorded. Only what an index offers under these hashes
gets into the image or has a hand in building it, whichever index that is.
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
BUILD_ROOT = "hatchling"
HERE = Path(__file__).parent
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
    match sys.argv[1:]:
        case [index]:
            names, lock, use = set(needed(ROOT, {ROOT})), HERE / "requirements.lock", "installed from"
        case [index, "--build"]:
            names, lock = {BUILD_ROOT, *needed(BUILD_ROOT, {BUILD_ROOT})}, HERE / "build-requirements.lock"
            use = "built with"
        case _:
            raise SystemExit(__doc__)
    head = f"# Written by deploy/lock.py. The image is {use} exactly these files.\n"
    lock.write_text(head + "".join(entry(index, name) for name in sorted(names)))


if __name__ == "__main__":
    main()
