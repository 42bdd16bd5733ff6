"""Notebooks as programs: their code cells in order, without a kernel."""

from __future__ import annotations

import json
from pathlib import Path

CELL_KEYS = {
    "markdown": {"cell_type", "id", "metadata", "source"},
    "code": {"cell_type", "id", "metadata", "source", "execution_count", "outputs"},
}


def read_notebook(path: Path) -> list[dict]:
    """The cells of a notebook that keeps to version 4.5 of the format: known kinds, their keys, ids that differ."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    cells = notebook["cells"]
    for cell in cells:
        assert set(cell) == CELL_KEYS[cell["cell_type"]], cell["id"]
        assert all(isinstance(line, str) for line in cell["source"])
    assert len({cell["id"] for cell in cells}) == len(cells)
    return cells


def as_program(cells: list[dict]) -> str:
    """The code cells, one after the other."""
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
