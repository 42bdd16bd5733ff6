"""Refuses a cohort whose sums, combined with those of earlier runs over the same data, expose too few members.

Each run gives sums over its cohort. Whoever holds the sums of several runs can add and subtract them with any weights;
what comes out is about the members whose weights do not cancel. Members that were in exactly the same runs always have
the same weight, so it is enough to look at groups of such members. A cohort exposes a set of fewer than `min_cohort`
members if, outside that set, its row of ones and zeros is a combination of the rows of earlier cohorts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dcfpca.secagg.fixed_cohort.homomorphic_mac import P

MOST_SETS = 20_000
"""The number of sets tried before a cohort is refused as undecidable."""

MOST_COHORTS = 30
"""With at most this many rows of zeros and ones no minor reaches P, so arithmetic modulo P is exact."""

Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run over the same data in which sums were opened."""

    run: str
    cohort: frozenset[str]


@dataclass(frozen=True, slots=True)
class Exposure:
    """The reason to refuse a cohort: combined with these runs, it gives sums over these members alone.

    Without members: the earlier cohorts are too many and too different to be sure.
    """

    runs: tuple[str, ...]
    members: tuple[str, ...]

    def __str__(self) -> str:
        if not self.members:
            return f"with the runs {', '.join(self.runs)} it cannot be told whether too few members would be exposed"
        earlier = f"with {', '.join(self.runs)} it" if self.runs else "it"
        return f"{earlier} would give sums over {', '.join(self.members)} alone"


def exposure(past: Sequence[PastRun], cohort: frozenset[str], min_cohort: int) -> Exposure | None:
    """The exposure of this cohort, over the same data as the past runs; None if there is none."""
    past = _distinct(past)
    undecided = Exposure(tuple(run.run for run in past), ())
    if len(past) >= MOST_COHORTS:
        return undecided
    groups = _groups(past, cohort)
    new = tuple(pattern[-1] for pattern in groups)
    rows = [tuple(pattern[place] for pattern in groups) for place in range(len(past))]
    if _spans(rows, new):
        return None
    for tried, chosen in enumerate(_small_sets([len(group) for group in groups.values()], min_cohort)):
        if tried == MOST_SETS:
            return undecided
        outside = [column for column in range(len(new)) if column not in chosen]
        if _spans([_at(row, outside) for row in rows], _at(new, outside)):
            members = [name for column, group in enumerate(groups.values()) if column in chosen for name in group]
            return Exposure(_involved(past, rows, new, outside), tuple(sorted(members)))
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
    """Every set of groups with fewer than `limit` members in all, small ones first, and no empty one."""
    waiting: list[tuple[frozenset[int], int, int]] = [(frozenset(), 0, 0)]
    for chosen, first, total in waiting:
        if chosen:
            yield chosen
        for group in range(first, len(sizes)):
            if total + sizes[group] < limit:
                waiting.append((chosen | {group}, group + 1, total + sizes[group]))


def _involved(past: Sequence[PastRun], rows: list[Row], new: Row, outside: list[int]) -> tuple[str, ...]:
    """The fewest runs, found by leaving out one after the other, with which the set is exposed."""
    kept = list(range(len(past)))
    for candidate in range(len(past)):
        fewer = [place for place in kept if place != candidate]
        if _spans([_at(rows[place], outside) for place in fewer], _at(new, outside)):
            kept = fewer
    return tuple(past[place].run for place in kept)


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
