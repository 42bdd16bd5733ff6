"""Keeps, for every record under benchmarks/results, on which commit it was taken.

`make results` notes the present commit for a record that is new or has changed; results/taken.json holds it with the
record's digest, so that a record that was changed without being noted is found by a test.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

NAME = "taken.json"


def records(results: Path) -> dict[str, str]:
    """Every record's name and digest."""
    found = sorted(path for path in results.glob("*.json*") if path.name != NAME)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in found}


def known(results: Path) -> dict[str, dict[str, str]]:
    """What is noted."""
    path = results / NAME
    noted: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}
    return noted


def note(results: Path) -> None:
    """Note the present commit for what is new or has changed, and forget what is gone."""
    before, now = known(results), records(results)
    noted = {
        name: before[name] if before.get(name, {}).get("digest") == digest else {"digest": digest, "commit": _commit()}
        for name, digest in now.items()
    }
    (results / NAME).write_text(json.dumps(noted, indent=1) + "\n")


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
