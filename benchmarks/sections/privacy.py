"""Private subspaces against ε, and what privacy costs a site."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.sections import Section, document, paragraphs, table

GOALS = ((1000, 10, 100_000, False, 1.0, 0.10), (200, 5, 20_000, True, 3.0, 0.05))
MOST_TIMES = 1.5


def private_subspace(results: Path) -> Section | None:
    """sin θ and F1 by cell and ε, the two goals, and the time of a round."""
    data = document(results / "private-subspace.json")
    if data is None:
        return None
    rows = [
        [
            f"{one.rows} × {one.columns:,}, {one.rank}",
            "5 %" if one.gross else "none",
            f"{one.epsilon:g}",
            *(_figure(getattr(one, key)) for key in ("sine", "predicted", "plain_sine", "f1", "plain_f1", "true_f1")),
        ]
        for one in data.cells
    ]
    heads = ["m × n, rank", "errors", "ε", "sin θ", "predicted", "plain DP-PCA", "F1", "F1 plain", "F1 of true U"]
    return Section(
        "Differential privacy per column",
        (
            "python -m benchmarks.private_subspace cells --rows 200 --rank 5 --columns 10000 --columns 20000 …",
            "python -m benchmarks.private_subspace cells --rows 1000 --rank 10 --columns 100000 --gross no",
            "python -m benchmarks.private_subspace rounds",
        ),
        paragraphs(
            "Ten sites, one conspirator, δ = 10⁻⁶, three rounds, one draw of the noise in each cell. Entries of L have "
            "deviation 1, noise has 0.1, gross errors are ±10. Plain DP-PCA takes the columns as they are with the "
            "same clip, and spends the whole budget on one noisy covariance. F1 is of the flags of 2000 more columns, "
            "with errors of ±1 in 5 % of the entries, by projection on each U, and on the true one. 10⁶ columns "
            "are measured with 200 rows to save time.",
            table(heads, rows),
            _beside_plain(data.cells),
            *_round_time(getattr(data, "rounds", [])),
        ),
        tuple(_short(data.cells, getattr(data, "rounds", []))),
    )


def _beside_plain(cells: Iterable[Any]) -> str:
    times = {gross: [one.plain_sine / one.sine for one in cells if one.gross is gross] for gross in (False, True)}
    if not all(times.values()):
        return ""
    return (
        f"With gross errors the sin θ of plain DP-PCA is {min(times[True]):.1f} to {max(times[True]):.1f} times the "
        f"private run's. Without them it is {min(times[False]):.2f} to {max(times[False]):.2f} times, so the better "
        "one: it needs no rounds, but sums of m × m numbers."
    )


def _figure(value: float) -> str:
    return f"{value:.2g}"


def _round_time(rounds: Iterable[Any]) -> list[str]:
    found = {one.way: one for one in rounds}
    if len(found) < 2:
        return []
    one, times = found["with"], found["with"].seconds / found["without"].seconds
    return [
        f"CPU seconds of a site's round with {one.columns:,} columns, m = {one.rows}, rank {one.rank}, noise included: "
        f"{one.seconds:.2g} with privacy and {found['without'].seconds:.2g} without, {times:.1f} times as much."
    ]


def _short(cells: Iterable[Any], rounds: Iterable[Any]) -> Iterator[str]:
    by_cell = {(one.rows, one.rank, one.columns, one.gross, one.epsilon): one.sine for one in cells}
    for rows, rank, columns, gross, epsilon, goal in GOALS:
        found = by_cell.get((rows, rank, columns, gross, epsilon))
        if found is not None and found > goal:
            yield (
                f"sin θ = {found:.2g} at m = {rows}, rank {rank}, n = {columns:,}, ε = {epsilon:g}, "
                f"where {goal:g} was wanted."
            )
    seconds = {one.way: one.seconds for one in rounds}
    if len(seconds) >= 2 and (times := seconds["with"] / seconds["without"]) > MOST_TIMES:
        yield (
            f"a site's round takes {times:.1f} times the CPU time of one without, where {MOST_TIMES:g} was "
            "wanted: its products are with twice as many directions, and exact, so in double precision, and its "
            "columns are cleaned in numpy. A private run has few rounds."
        )
