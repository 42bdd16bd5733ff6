"""Whether "Exact" is said where L is right, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.sections import Section, lines, paragraphs, power, table


def identifiable(results: Path) -> Section | None:
    """Right and wrong words on exact data."""
    rows = lines(results / "solver-identifiable.jsonl")
    if not rows:
        return None
    kinds = list(dict.fromkeys(_kind(row) for row in rows))
    body = [_counted(kind, [row for row in rows if _kind(row) == kind]) for kind in kinds]
    return Section(
        'The verdict: "Exact" where L is right',
        ("python -m benchmarks.solver identifiable",),
        paragraphs(
            "Exact low rank and outliers, 100 × 120, 150 × 150, 20 × 300 and 8 × 300, the rank unknown, four sites: "
            "5 to 30 % of the entries; and blocks a bᵀ of 5 to 40 % of the features and samples, 10 to 20 % of whole "
            "samples or features, and two blocks. L is right where its error is at most 1e-6; else outliers are in it.",
            table(["outliers", "right, “Exact”", "right, not said", "wrong, “Exact”", "wrong, not said"], body),
        ),
        tuple(_false(rows)),
    )


def _kind(row: dict[str, Any]) -> str:
    return str(row["outliers"]).split(" of ")[0]


def _counted(kind: str, rows: list[dict[str, Any]]) -> list[str]:
    cells = ((True, True), (True, False), (False, True), (False, False))
    counts = (sum((row["right"], row["said"] == "exact") == cell for row in rows) for cell in cells)
    return [kind, *map(str, counts)]


def _false(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["said"] == "exact" and not row["right"]:
            error = f"“Exact” at an error of L of {power(row['relative_error_L'])}"
            yield f"{row['outliers']}, {row['size']}, seed {row['seed']}: {error}."
