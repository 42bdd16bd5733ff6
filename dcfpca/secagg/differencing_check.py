"""Refuses a run whose sums, combined with those of earlier runs over the same data, expose too few members or columns.

Each run gives sums over its cohort. Whoever holds the sums of several runs can add and subtract them with any weights;
the result is about the members whose weights do not cancel. Members that took part in exactly the same runs always have
the same weight, so it is enough to look at groups of such members. A cohort exposes a set of fewer than `min_cohort`
members if, outside that set, its row of ones and zeros is a combination of the rows of earlier cohorts. The same
reasoning applies to the columns of one site whose data changed between runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.secagg.column_sets import ColumnSet
from dcfpca.secagg.homomorphic_mac import P

MOST_SETS = 20_000
"""The number of sets tried before a cohort is refused as undecidable."""

MOST_COHORTS = 30
"""With at most this many rows of zeros and ones no minor reaches P, so arithmetic modulo P is exact."""

Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PastRun:
    """An earlier run that gave sums, or still may: its cohort, and the columns of this site that it used. No cohort
    means that the aggregator saw the updates themselves; no columns, that they are not known. `noisy` means
    differential privacy.
    """

    run: str
    cohort: frozenset[str]
    columns: ColumnSet | None = None
    noisy: bool = False


@dataclass(frozen=True, slots=True)
class Exposure:
    """The reason to refuse a cohort: combined with these runs, it gives sums over these members alone. Without members,
    the earlier cohorts are too many and too different to be sure.
    """

    runs: tuple[str, ...]
    members: tuple[str, ...]

    def __str__(self) -> str:
        if not self.members:
            return f"with the runs {', '.join(self.runs)} it cannot be decided whether too few members would be exposed"
        earlier = f"with {', '.join(self.runs)} it" if self.runs else "it"
        return f"{earlier} would give sums over {', '.join(self.members)} alone"


@dataclass(frozen=True, slots=True, eq=False)
class ColumnExposure:
    """A run over the present columns, combined with these runs, gives sums over only the columns at `places`, and over
    some that are `gone`. With neither, the earlier states of the data are too many and too different to be sure.
    """

    runs: tuple[str, ...]
    places: NDArray[np.intp]
    gone: int


class _Undecided(Exception):  # nobody's error: the caller says what it means
    """There are too many sets to try."""


def exposure(past: Sequence[PastRun], cohort: frozenset[str], min_cohort: int) -> Exposure | None:
    """The exposure of this cohort, over the same data as the past runs; None if there is none."""
    past = _distinct(past)
    undecided = Exposure(tuple(run.run for run in past), ())
    if len(past) >= MOST_COHORTS:
        return undecided
    groups = _groups(past, cohort)
    try:
        found = _exposed_groups(list(groups), [len(group) for group in groups.values()], min_cohort)
    except _Undecided:
        return undecided
    if found is None:
        return None
    chosen, involved = found
    members = [name for column, group in enumerate(groups.values()) if column in chosen for name in group]
    return Exposure(tuple(past[place].run for place in involved), tuple(sorted(members)))


def column_exposure(past: Sequence[PastRun], now: ColumnSet, fewest: int) -> ColumnExposure | None:
    """The exposure of fewer than `fewest` columns by one more run over the present ones; None if there is none.

    Earlier states of the data are compared in groups that are small enough to decide.
    """
    known = {run.columns.digest: run for run in past if run.columns is not None and run.columns.key_id == now.key_id}
    if now.digest in known:
        return None  # a run over exactly these columns has told what this one tells
    earlier = list(known.values())
    windows = (earlier[at : at + MOST_COHORTS - 1] for at in range(0, len(earlier), MOST_COHORTS - 1))
    return next((found for window in windows if (found := _exposed_columns(window, now, fewest))), None)


def _exposed_columns(past: Sequence[PastRun], now: ColumnSet, fewest: int) -> ColumnExposure | None:
    contents = [*(run.columns.contents for run in past if run.columns is not None), now.contents]
    every = np.unique(np.concatenate(contents))
    codes = np.zeros(every.size, np.int64)
    for place, one in enumerate(contents):
        codes += np.isin(every, one).astype(np.int64) << place
    patterns, group_of, sizes = np.unique(codes, return_inverse=True, return_counts=True)
    rows = [tuple(int(code) >> place & 1 for place in range(len(contents))) for code in patterns]
    try:
        found = _exposed_groups(rows, sizes.tolist(), fewest)
    except _Undecided:
        return ColumnExposure(tuple(run.run for run in past), np.zeros(0, np.intp), 0)
    if found is None:
        return None
    chosen, involved = found
    hashes = every[np.isin(group_of, sorted(chosen))]
    places = np.flatnonzero(np.isin(now.contents, hashes))
    return ColumnExposure(tuple(past[place].run for place in involved), places, hashes.size - places.size)


def _exposed_groups(
    patterns: Sequence[Row], sizes: Sequence[int], limit: int
) -> tuple[frozenset[int], tuple[int, ...]] | None:
    """The groups that the last run exposes, with fewer than `limit` members in all, and the earlier runs that this
    takes. A pattern says which runs the members of a group are in; the new run is the last.
    """
    *rows, new = zip(*patterns, strict=True)
    if _spans(rows, new):
        return None
    for tried, chosen in enumerate(_small_sets(sizes, limit)):
        if tried == MOST_SETS:
            raise _Undecided
        outside = [column for column in range(len(new)) if column not in chosen]
        if _spans([_at(row, outside) for row in rows], _at(new, outside)):
            return chosen, _involved(rows, new, outside)
    return None


def _distinct(past: Sequence[PastRun]) -> list[PastRun]:
    """One run for each cohort: the same one again adds no combination."""
    return list({run.cohort: run for run in past}.values())


def _groups(past: Sequence[PastRun], cohort: frozenset[str]) -> dict[Row, list[str]]:
    """Members by the runs they are in; the new one is the last."""
    cohorts = [*(run.cohort for run in past), cohort]
    groups: dict[Row, list[str]] = {}
    for name in sorted(frozenset().union(*cohorts)):
        groups.setdefault(tuple(int(name in members) for members in cohorts), []).append(name)
    return groups


def _small_sets(sizes: Sequence[int], limit: int) -> Iterator[frozenset[int]]:
    """Every nonempty set of groups with fewer than `limit` members in all, small ones first."""
    waiting: list[tuple[frozenset[int], int, int]] = [(frozenset(), 0, 0)]
    for chosen, first, total in waiting:
        if chosen:
            yield chosen
        for group in range(first, len(sizes)):
            if total + sizes[group] < limit:
                waiting.append((chosen | {group}, group + 1, total + sizes[group]))


def _involved(rows: Sequence[Row], new: Row, outside: list[int]) -> tuple[int, ...]:
    """A smallest set of runs that exposes these members, found by leaving out one run after the other."""
    kept = list(range(len(rows)))
    for candidate in range(len(rows)):
        fewer = [place for place in kept if place != candidate]
        if _spans([_at(rows[place], outside) for place in fewer], _at(new, outside)):
            kept = fewer
    return tuple(kept)


def _at(row: Row, columns: Sequence[int]) -> Row:
    return tuple(row[column] for column in columns)


def _spans(rows: Sequence[Row], wanted: Row) -> bool:
    """True if the wanted row is a combination of the others."""
    echelon: list[tuple[int, list[int]]] = []
    for row in rows:
        if reduced := _reduced(list(row), echelon):
            echelon.append(reduced)
    return _reduced(list(wanted), echelon) is None


def _reduced(row: list[int], echelon: Sequence[tuple[int, list[int]]]) -> tuple[int, list[int]] | None:
    """The row without the pivots of the others, scaled to have a pivot of one; None if nothing is left."""
    for pivot, other in echelon:
        if factor := row[pivot]:
            row = [(value - factor * by) % P for value, by in zip(row, other, strict=True)]
    found = next((column for column, value in enumerate(row) if value), None)
    if found is None:
        return None
    inverse = pow(row[found], -1, P)
    return found, [value * inverse % P for value in row]
