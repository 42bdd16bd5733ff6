"""Deleting results that are older, or more, than the configuration keeps. The ledger keeps every line."""

from __future__ import annotations

import shutil
from pathlib import Path

from participant.results.reading import MANIFEST

DAY_SECONDS = 86400.0


def expired_results(directory: Path, keep_runs: int, keep_days: float, now: float) -> list[Path]:
    """The result directories beyond the newest `keep_runs`, or written `keep_days` ago; 0 keeps all."""
    written = {path.parent: path.stat().st_mtime for path in directory.glob(f"[!.]*/{MANIFEST}")}
    newest = sorted(written, key=written.__getitem__, reverse=True)
    beyond = newest[keep_runs:] if keep_runs else []
    old = [path for path in newest if keep_days and written[path] < now - keep_days * DAY_SECONDS]
    return sorted({*beyond, *old})


def delete_expired_results(directory: Path, keep_runs: int, keep_days: float, now: float) -> list[str]:
    """Delete them; returns the runs whose results are gone."""
    expired = expired_results(directory, keep_runs, keep_days, now)
    for path in expired:
        shutil.rmtree(path, ignore_errors=True)
    return [path.name for path in expired]
