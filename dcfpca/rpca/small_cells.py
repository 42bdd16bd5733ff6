"""Merges the small cells of a site's counts, so that no count that leaves a site is about fewer than `least` entries.

Cells of a line (a histogram) are merged from its low end on until a group holds at least `least` entries; the rest at
the high end joins the last group. A group's count stands in the cell of its middle entry, so that totals stay what they
are and quantiles hardly move: across any edge between cells fewer than `least` entries move either way. The largest and
the smallest entries of a site never have a cell to themselves, so they decide nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from dcfpca.rpca.method import FloatArray

CERTAIN, CERTAIN_OF_FEW = 12.0, 60.0  # deviations and entries from a quantile: beyond, chance leaves e⁻⁷⁰


def merge_cells(counts: FloatArray, least: int) -> FloatArray:
    """Whole counts of lines (rows × cells) after merging. A line with fewer than `least` entries in all has them in its
    middle cell, wherever they lie."""
    rows, cells = counts.shape
    ends = _group_ends(counts, least)
    upto = np.cumsum(counts, axis=1)
    line, end = np.nonzero(ends)
    stop = upto[line, end]
    same = np.concatenate([[False], line[1:] == line[:-1]])
    begin = np.where(same, np.concatenate([[0.0], stop[:-1]]), 0.0)
    # One search finds all middles: each line follows the one before. Whole numbers and their halves are exact.
    before = (upto[:, -1].max(initial=0.0) + 1.0) * np.arange(rows)
    place = np.searchsorted((upto + before[:, None]).ravel(), 0.5 * (begin + stop) + before[line]) - cells * line
    place = np.where(upto[line, -1] < least, cells // 2, place)
    merged = np.zeros((rows, cells))
    merged[line, place] = stop - begin
    return merged


def _group_ends(counts: FloatArray, least: int) -> FloatArray:
    """Which cells are the last of their group."""
    ends, held = np.zeros(counts.shape, dtype=bool), np.zeros(counts.shape[0])
    for cell, count in enumerate(counts.T):
        held += count
        ends[:, cell] = held >= least
        held[ends[:, cell]] = 0.0
    left = np.flatnonzero(held > 0.0)
    last = counts.shape[1] - 1 - np.argmax(ends[left, ::-1], axis=1)
    ends[left, last] = False
    ends[left, -1] = True
    return ends


def merge_shares(shares: FloatArray, unit: float, least: int) -> FloatArray:
    """The same of counts that are sent divided by `unit`."""
    return merge_cells(np.rint(shares * unit), least) / unit


def merge_sides(below: FloatArray, above: FloatArray, least: int) -> tuple[FloatArray, FloatArray]:
    """The same for two lines per row that go down and up from one point; they are merged as one line."""
    line = merge_cells(np.column_stack([below[:, ::-1], above]), least)
    return line[:, below.shape[1] - 1 :: -1], line[:, below.shape[1] :]


def at_least(count: float, least: float) -> float:
    """A single count, or zero where it is below `least`, but for rounding."""
    return count if count > least * (1.0 - 1e-9) else 0.0


@dataclass(frozen=True, slots=True)
class Merging:
    """How summed counts were merged: the entries at each site, the number of sites, and the least count of a cell."""

    entries: float
    sites: int
    least: int

    @property
    def hidden(self) -> int:
        """The most entries that lie further off, on one side, than the sums say."""
        return (self.least - 1) * self.sites

    def levels(self, levels: FloatArray) -> FloatArray:
        """The shares of merged counts that lie below the quantiles at `levels`.

        A group's middle is less far out than half of the group, so that far out the quantiles of merged counts lie too
        far in. The level of a middle has the Beta distribution of an order statistic, whatever that of the entries.
        With `least` = 1 shares and levels are the same.
        """
        if self.least == 1:
            return levels
        groups = max(int(self.entries // self.least), 1)
        # If a middle lies further from the quantile than chance moves either, it is certain on which side it lies.
        reach = CERTAIN * np.sqrt(self.entries * levels * (1.0 - levels)) + CERTAIN_OF_FEW
        first = np.clip((self.entries * levels - reach) * groups / self.entries, 0.0, groups).astype(np.intp)
        group = first[:, None] + np.arange(min(groups, int(2.0 * reach.max() * groups / self.entries) + 2))
        middle = np.minimum((group + 0.5) * self.entries / groups + 0.5, self.entries + 0.5)
        below = scipy.special.betainc(middle, self.entries + 1.0 - middle, levels[:, None])
        return np.asarray((first + np.where(group < groups, below, 0.0).sum(axis=1)) / groups)
