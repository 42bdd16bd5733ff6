"""Where the repository and the data beside it lie, wherever the test that asks is."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
