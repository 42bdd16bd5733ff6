"""What sites that lie do to the findings of honest ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.sections import Section, paragraphs, table

LOST, LOST_BY_UPDATES, RECALL = 0.03, 0.05, 0.95  # of F1, and the least recall of a pattern: what was asked for
BY_UPDATES = ("update", "pull", "covariance", "null", "shape", "adaptive: null")
Rows = list[dict[str, Any]]


def poisoning(results: Path) -> Section | None:
    """The worst of the seeds of every attack."""
    if not (path := results / "poisoning.json").exists():
        return None
    groups: dict[tuple[str, str], Rows] = {}
    for row in json.loads(path.read_text()):
        groups.setdefault((row["attack"], row["cohort"]), []).append(row)
    return Section(
        "Sites that lie",
        ("python -m benchmarks.poisoning --json benchmarks/results/poisoning.json",),
        paragraphs(
            "Sites with 40 features of rank 4 and 150 columns each (a liar with counts to move has 1,500), 2 % of "
            "whose entries are wrong and 2 % of whose columns have a pattern in eight features. Figures are "
            "those of the honest sites: the worst of the seeds, and in brackets those of the same sites without "
            "the liars. *Alarmed* counts sites for which the shared model fails. "
            "*Told* counts liars whose own software says that their "
            "features differ, where their data is what they send. A star marks lines that were measured before the "
            "last changes of own views, and not again.",
            table(
                [
                    "attack",
                    "liars",
                    "F1",
                    "pattern found",
                    "healthy flagged",
                    "rank published",
                    "alarmed",
                    "told",
                    "sound",
                ],
                [_line(name, cohort, rows) for (name, cohort), rows in groups.items()],
            ),
        ),
        tuple(_short(groups)),
    )


def _line(name: str, cohort: str, rows: Rows) -> list[str]:
    done = [row for row in rows if "ended" not in row]
    if not done:
        return [name, cohort, *[""] * 6, "ended: " + rows[0]["ended"]]
    span = [sorted({row[key] for row in done}) for key in ("published", "alarms", "liars_told")]
    return [
        name,
        cohort.replace("of", " of ") + " *" * any(row.get("earlier") for row in rows),
        *(_worst(done, key) for key in ("f1", "pattern")),
        f"{100 * max(row['healthy'] for row in done):.2f} %",
        *(f"{one[0]}" if len(one) == 1 else f"{one[0]}–{one[-1]}" for one in span),
        f"{sum(row['sound'] for row in done)} of {len(rows)}",
    ]


def _worst(rows: Rows, key: str) -> str:
    least = min(rows, key=lambda row: row[key])
    before = least.get(f"{key}_before")
    return f"{least[key]:.2f}" + ("" if before is None else f" ({before:.2f})")


def _short(groups: dict[tuple[str, str], Rows]) -> list[str]:
    said = []
    for (name, cohort), rows in groups.items():
        updates = name.startswith(BY_UPDATES)
        for row in rows:
            lost = row.get("f1_before", 0.0) - row.get("f1", 1.0)
            few = not updates and row.get("pattern", 1.0) < min(RECALL, row.get("pattern_before", 0.0))
            if lost > (LOST_BY_UPDATES if updates else LOST) or few:
                figures = f"F1 {row['f1']:.3f} ({row['f1_before']:.3f} without the liars), pattern found"
                found = f"{row['pattern']:.2f} ({row['pattern_before']:.2f})"
                said.append(f"{name}, {cohort.replace('of', ' of ')}, seed {row['seed']}: {figures} {found}.")
    return said
