"""Reads what left a site from its ledger, with the participant's command."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from dcfpca.errors import DcfpcaError

_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SentMessages:
    """The messages of one kind that left a site."""

    kind: str
    count: int
    size: int
    shape: str


def read_ledger(config: Path) -> list[SentMessages]:
    """Every kind of message that left, most bytes first; `shape` is that of the last message."""
    command = [sys.executable, "-m", "participant.main", "ledger", "--config", str(config), "--json"]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
    if asked.returncode:
        raise DcfpcaError(f"the ledger of {config.parent.name} cannot be read: {asked.stderr.strip()}")
    found: dict[str, SentMessages] = {}
    for entry in json.loads(asked.stdout)["entries"]:
        if not entry["sent"]:
            continue
        before = found.get(entry["type"], SentMessages(entry["type"], 0, 0, ""))
        found[entry["type"]] = SentMessages(before.kind, before.count + 1, before.size + entry["bytes"], entry["shape"])
    return sorted(found.values(), key=lambda left: -left.size)
