"""Writes a report to a file that appears complete or not at all."""

from __future__ import annotations

from pathlib import Path

from dcfpca.errors import BadInput


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
