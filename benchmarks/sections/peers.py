"""Who is faster where, among solvers that see all the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.sections import Section, paragraphs, power, table

LEVELS = ("1e-6", "1e-10")
FLOOR = "scikit-learn"  # plain PCA, which comes near no level
Row = dict[str, Any]


def peers(results: Path) -> Section | None:
    """CPU seconds to each level by solver, case by case."""
    path = results / "peers.json"
    rows: list[Row] = json.loads(path.read_text()) if path.exists() else []
    if not rows:
        return None
    cases = list(dict.fromkeys((row["size"], row["rank"], row["outliers"]) for row in rows))
    timed = [row for row in rows if row.get("level") in LEVELS and row["solver"] != FLOOR]
    return Section(
        "Peers: the strongest solvers for one machine",
        ("python -m benchmarks.peers.record --sizes 500 1000 3000 --json benchmarks/results/peers.json",),
        paragraphs(
            "CPU seconds on one thread to ‖L−L₀‖²/‖L₀‖² of 1e-6 and 1e-10, all in turn in one run; 5 % outliers. Ours "
            "has ten sites in sequence and its defaults; the others see the whole matrix, each with the settings that "
            "were fastest. *Told* is what a solver is given beyond the matrix. The fastest in each column is in bold.",
            *(part for case in cases for part in _case(case, timed)),
            *_packages(rows),
            _misled(rows),
        ),
        (
            *(sentence for case in cases for sentence in _lost(case, timed)),
            *(() if any(row.get("version") for row in rows) else ("No package of the index was measured.",)),
        ),
    )


def _of(case: tuple[int, int, str], rows: list[Row]) -> dict[tuple[str, str], dict[str, Row]]:
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        if (row["size"], row["rank"], row["outliers"]) == case:
            name = f"{row['solver']} {row['version']}" if row.get("version") else row["solver"]
            found.setdefault((name, row["told"]), {})[row["level"]] = row
    return found


def _fastest(found: dict[tuple[str, str], dict[str, Row]], level: str) -> float:
    return min((by[level]["cpu_seconds"] for by in found.values() if _seconds(by, level)), default=float("inf"))


def _seconds(by_level: dict[str, Row], level: str) -> float | None:
    row = by_level.get(level)
    return row["cpu_seconds"] if row else None


def _case(case: tuple[int, int, str], rows: list[Row]) -> list[str]:
    size, rank, outliers = case
    found = _of(case, rows)
    best = {level: _fastest(found, level) for level in LEVELS}
    body = [
        [solver, told, *(_shown(by, level, best[level]) for level in LEVELS)] for (solver, told), by in found.items()
    ]
    title = f"n = {size}, r = {rank}, {outliers} outliers:"
    return [title, table(["solver", "told", *LEVELS], body)]


def _shown(by_level: dict[str, Row], level: str, best: float) -> str:
    seconds = _seconds(by_level, level)
    if seconds is None:
        return (by_level[level].get("note") or "not reached") if level in by_level else "–"
    text = f"{power(seconds, 2)} ({by_level[level]['iterations']})"
    return f"**{text}**" if seconds <= best else text


def _packages(rows: list[Row]) -> list[str]:
    """What a call as in the packages' documentation gives."""
    found = [row for row in rows if row.get("level") == "own tolerance"]
    if not found:
        return []
    names = list(dict.fromkeys((row["solver"], row["version"]) for row in found))
    cases = list(dict.fromkeys((row["size"], row["rank"], row["outliers"]) for row in found))
    at = {(row["size"], row["rank"], row["outliers"], row["solver"]): row for row in found}
    body = [
        [f"{size}, r = {rank}, {outliers}", *(_own(at.get((size, rank, outliers, name))) for name, _ in names)]
        for size, rank, outliers in cases
    ]
    return [
        "Names with a version are packages that a user would install. The next table calls them as their "
        "documentation does, to their own tolerance: CPU seconds and squared error of L (pyrpca: λ = 1/√n; rpca: the "
        "rank and one more, as it subtracts means that outliers have moved; tensorly: reg_E = 2/√n, for a matrix has "
        "two unfoldings; scikit-learn's PCA, not robust, is the floor). In the tables above each has the best of two "
        "or three values of its tuning parameters (rho, beta, learning_rate), and runs in a process with a time limit.",
        table(["n", *(f"{name} {number}" for name, number in names)], body),
    ]


def _own(row: Row | None) -> str:
    if row is None or row["cpu_seconds"] is None:
        return row["note"] or "not reached" if row else "–"
    return f"{power(row['cpu_seconds'], 2)}: {power(row['squared_error'])}"


def _misled(rows: list[Row]) -> str:
    found = [row for row in rows if "smallest_squared_error_L" in row]
    names = list(dict.fromkeys(row["solver"] for row in found))
    worst = {name: min(row["smallest_squared_error_L"] for row in found if row["solver"] == name) for name in names}
    told = ", ".join(f"{name} {power(error)}" for name, error in worst.items())
    return f"Solvers that need the rank, told twice the true one, reach these squared errors: {told}." if told else ""


def _lost(case: tuple[int, int, str], rows: list[Row]) -> list[str]:
    """Where somebody is faster than ours with as much told as ours."""
    found = _of(case, rows)
    size, rank, outliers = case
    ours = {told: by for (solver, told), by in found.items() if solver == "subspace"}
    told = []
    for (solver, what), by in found.items():
        own = ours.get("rank" if what != "nothing" else "bound 2r")
        if solver == "subspace" or own is None:
            continue
        for level in LEVELS:
            theirs, mine = _seconds(by, level), _seconds(own, level)
            if theirs and (mine is None or theirs < mine):
                told.append(
                    f"n = {size}, r = {rank}, {outliers}, to {level}: {solver} (told {what}) takes "
                    f"{power(theirs, 2)} s, "
                    f"ours {power(mine, 2)} s."
                )
    return told
