"""Wrong entries in twelve real tables: ours as a federation, others with all data in one place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sections import Section, document, paragraphs, table

OURS = "ours, as a federation"
FIGURES = ("f1", "precision", "best_f1", "average_precision")


def cell_peers(results: Path) -> Section | None:
    """Means of each method over all problems, and how often ours is ahead and behind."""
    rows = document(results / "cell-peers.json")
    if rows is None:
        return None
    by_method: dict[str, dict[str, Any]] = {}
    for row in rows:
        if hasattr(row, "f1"):
            by_method.setdefault(row.who, {})[row.problem] = row
    own = by_method[OURS]
    named = sorted(by_method, key=lambda who: -np.mean([row.f1 for row in by_method[who].values()]))
    lines = [_line(who, by_method[who], own) for who in named]
    behind = [who for who in named if who != OURS and _ahead(by_method[who], own, "best_f1")[1] > len(own) / 2]
    return Section(
        "Wrong entries: against other methods",
        ("python -m benchmarks.cell_peers --data DIR --json benchmarks/results/cell-peers.json",),
        paragraphs(
            "3 % of the entries of twelve real tables changed in one of five ways (moved by 4 to 12 deviations, "
            f"decimal point, unit, two values swapped, sign): {len(own)} problems. Ours is a federation by the "
            "tables' sites; the others have all data in one place. The columns are means: F1 and precision at "
            "each method's own flags, the best F1 of any cut of its order, and the average precision of the "
            "order. Numbers beside F1 and best F1 count the problems in which ours is ahead and behind. "
            "Values that are unusual in the original tables count "
            "as false alarms. MacroPCA is missing: R's cellWise could not be installed.",
            table(["method", "F1", "ours ahead–behind", "precision", "best F1", "ours ahead–behind",
                   "average precision", "problems"], lines),
        ),
        tuple(f"{who} orders entries better than ours in most problems." for who in behind),
    )  # fmt: skip


def _line(who: str, rows: dict[str, Any], own: dict[str, Any]) -> list[str]:
    f1, precision, best, average = (f"{np.mean([getattr(row, key) for row in rows.values()]):.3f}" for key in FIGURES)
    flags, order = ("–" if who == OURS else "{}–{}".format(*_ahead(rows, own, key)) for key in ("f1", "best_f1"))
    return [who, f1, flags, precision, best, order, average, str(len(rows))]


def _ahead(rows: dict[str, Any], own: dict[str, Any], key: str) -> tuple[int, int]:
    """In how many of the problems that both solved ours is ahead, and behind."""
    gaps = [getattr(own[name], key) - getattr(row, key) for name, row in rows.items() if name in own]
    return sum(gap > 0.0 for gap in gaps), sum(gap < 0.0 for gap in gaps)
