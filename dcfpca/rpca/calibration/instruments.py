"""Finds instruments of a site that repeat a value or drift, in the order of the site's own samples.

Nothing of this leaves the site. A value repeats where a run of equal ones is longer than the feature's other neighbours
explain: a table that is sorted, or a feature of few values, has many equal neighbours anyway. A feature drifts where
its deviations from what the sample's other entries say rise or fall with the samples' order, by several deviations.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import scipy

from dcfpca.rpca.method import FloatArray, Instrument, ScannedBlock

LEAST_RUN = 5  # samples
MOST_EQUAL = (
    0.5  # of a feature's other neighbours: with more, it is no continuous feature, or the table is sorted by it
)
MOST_VALUES = 256  # of a feature whose frequencies are counted
CHANCE = 1e-4  # of naming any feature of the site where there is nothing
FEWEST = 20  # observed entries of which a trend is told, or other neighbours beside a run
CLIP = 8.0  # deviations: a gross entry must not look like a trend
MOST_SCANNED = 10_000  # features, the first ones, in which repeated values are looked for, each by itself
LEAST_DRIFT = 3.0  # from the first sample to the last, in deviations of what is left about the trend


@dataclass(slots=True)
class Run:
    """Equal values of neighbouring samples; unobserved entries between them do not end it."""

    value: float
    first: int
    last: int
    length: int


@dataclass(slots=True)
class _Runs:
    """The runs of one feature, block after block."""

    current: Run | None = None
    long: list[Run] = field(default_factory=list)
    pairs: int = 0
    equal: int = 0
    frequency: dict[float, int] = field(default_factory=dict)  # of the first values that there are: the common ones
    counted: int = 0  # entries that have one of them

    def add(self, values: FloatArray, places: FloatArray) -> None:
        """Add observed values, and the places of their samples."""
        if not values.size:
            return
        self._count(values)
        ends = np.append(np.flatnonzero(np.diff(values) != 0.0), values.size - 1)
        begins = np.concatenate([[0], ends[:-1] + 1])
        self._append(_run(values, places, begins[0], ends[0]))
        if len(ends) == 1:
            return
        # Runs that begin and end here: most are of one sample, and only counted.
        self.end()
        again = (ends - begins)[1:-1]
        self.pairs += int(again.sum()) + len(ends) - 1
        self.equal += int(again.sum())
        long = np.flatnonzero(again >= LEAST_RUN - 1) + 1
        self.long += [_run(values, places, begins[place], ends[place]) for place in long]
        self.current = _run(values, places, begins[-1], ends[-1])

    def add_distinct(self, values: FloatArray, start: int) -> None:
        """Add values of neighbouring samples, no two neighbours of which are equal."""
        self._count(values)
        last, open_run = values.size - 1, self.current
        if last and open_run is not None and open_run.length == 1 and open_run.value != values[0]:
            # Nearly always so where values are continuous; what follows does the same, ten times as slowly.
            self.pairs += last + 1
            self.current = Run(float(values[last]), start + last, start + last, 1)
            return
        self._append(Run(float(values[0]), start, start, 1))
        if last:
            self.end()
            self.pairs += last
            self.current = Run(float(values[last]), start + last, start + last, 1)

    def _count(self, values: FloatArray) -> None:
        """Count frequencies, unless the first values have shown that hardly any comes again."""
        if len(self.frequency) == MOST_VALUES and self.counted < 2 * MOST_VALUES:
            return
        for value, count in zip(*(part.tolist() for part in np.unique(values, return_counts=True)), strict=True):
            if value in self.frequency or len(self.frequency) < MOST_VALUES:
                self.frequency[value] = self.frequency.get(value, 0) + count
                self.counted += count

    def _append(self, run: Run) -> None:
        if self.current is not None and self.current.value == run.value:
            run = Run(run.value, self.current.first, run.last, self.current.length + run.length)
        elif self.current is not None:
            self.end()
            self.pairs += 1
        self.current = run

    def end(self) -> None:
        """Count the run that is open; another may follow."""
        if self.current is None:
            return
        self.pairs += self.current.length - 1
        self.equal += self.current.length - 1
        if self.current.length >= LEAST_RUN:
            self.long.append(self.current)
        self.current = None

    def stuck(self, chance: float) -> list[Run]:
        """The runs that are longer than equal neighbours elsewhere explain, longest first."""
        found, pairs, equal = [], self.pairs, self.equal
        for run in sorted(self.long, key=lambda one: -one.length):
            pairs, equal = pairs - run.length + 1, equal - run.length + 1
            others = max(self.frequency.get(run.value, 0) - run.length, 0)
            share = (max(equal, others) + 1.0) / (pairs + 2.0)
            explained = np.log(self.pairs + 1.0) + (run.length - 1) * np.log(share)
            if pairs < FEWEST or share > MOST_EQUAL or explained > np.log(chance):
                break
            found.append(run)
        return found


def _run(values: FloatArray, places: FloatArray, begin: int, end: int) -> Run:
    return Run(float(values[begin]), int(places[begin]), int(places[end]), int(end - begin + 1))


def scan_block(M: FloatArray, z: FloatArray, deviation: FloatArray) -> ScannedBlock:
    """What these samples (m × n, NaN: unobserved), with their deviations, say about instruments; `deviation` is each
    feature's."""
    known, places = ~np.isnan(z), np.arange(M.shape[1], dtype=np.float64)
    y, x = np.where(known, np.clip(z, -CLIP, CLIP), 0.0), np.where(known, places, 0.0)
    trend = [known.sum(axis=1), x.sum(axis=1), (x**2).sum(axis=1), y.sum(axis=1), (x * y).sum(axis=1)]
    first = np.where(known, places, np.inf).min(axis=1, initial=np.inf)
    last = np.where(known, places, -np.inf).max(axis=1, initial=-np.inf)
    return ScannedBlock(M, np.array(trend), (y**2).sum(axis=1), np.array([first, last]), deviation)


class InstrumentScan:
    """Collects what all blocks of a site, in their order, show about its instruments."""

    def __init__(self, rows: int) -> None:
        self._runs = [_Runs() for _ in range(min(rows, MOST_SCANNED))]
        self._trend = np.zeros((5, rows))  # of places x and deviations y: Σ1, Σx, Σx², Σy, Σxy
        self._squares, self._ends = np.zeros(rows), np.array([np.inf, -np.inf])[:, None] * np.ones(rows)
        self._block: ScannedBlock | None = None  # the last one: what is said of features is the same in all

    def add(self, start: int, block: ScannedBlock | None) -> None:
        """Add the samples from `start` on; None for a method without a null, from which nothing can be learned."""
        if block is None:
            return
        M, self._block = block.entries, block
        places, seen = np.arange(start, start + M.shape[1], dtype=np.float64), ~np.isnan(M)
        distinct = (M.shape[1] > 0) & seen.all(axis=1) & (M[:, 1:] != M[:, :-1]).all(axis=1)
        for row, runs in enumerate(self._runs):
            if distinct[row]:
                runs.add_distinct(M[row], start)
            else:
                runs.add(M[row, seen[row]], places[seen[row]])
        count, x, xx, y, xy = block.trend
        self._trend += [count, x + start * count, xx + 2.0 * start * x + start**2 * count, y, xy + start * y]
        self._squares += block.squares
        self._ends[0] = np.minimum(self._ends[0], start + block.ends[0])
        self._ends[1] = np.maximum(self._ends[1], start + block.ends[1])

    def found(self) -> tuple[Instrument, ...]:
        """One for each instrument that repeats or drifts, in the data's own units."""
        if self._block is None:
            return ()
        rows = len(self._block.deviation)
        centre, scale = (np.broadcast_to(one, rows) for one in (self._block.centre, self._block.scale))
        found = self._named(self._block.deviation)
        # A value that repeats has a place, a drift only a size.
        return tuple(
            replace(one, amount=float(one.amount * scale[one.feature] + (one.kind == "stuck") * centre[one.feature]))
            for one in found
        )

    def _named(self, deviation: FloatArray) -> list[Instrument]:
        """One for each instrument, in the unit of the entries."""
        chance, named = CHANCE / max(len(deviation), 1), list[Instrument]()
        for row in range(len(deviation)):
            stuck = self._stuck(row, chance) if row < len(self._runs) else []
            named += [Instrument(row, "stuck", one.first, one.last, one.length, one.value) for one in stuck]
            drift = 0.0 if stuck else self._drift(row, chance)
            if drift:
                first, last = (int(place) for place in self._ends[:, row])
                named.append(Instrument(row, "drift", first, last, int(self._trend[0, row]), drift * deviation[row]))
        return named

    def _stuck(self, row: int, chance: float) -> list[Run]:
        self._runs[row].end()
        return self._runs[row].stuck(chance)

    def _drift(self, row: int, chance: float) -> float:
        """How many deviations the feature drifts by, from the first sample to the last; 0 where chance explains it."""
        count, x, xx, y, xy = self._trend[:, row]
        if count < FEWEST:
            return 0.0
        of_x, of_y, both = xx - x * x / count, self._squares[row] - y * y / count, xy - x * y / count
        if of_x <= 0.0 or of_y <= 0.0:
            return 0.0
        correlation, slope = both / np.sqrt(of_x * of_y), both / of_x
        size = abs(correlation) * np.sqrt((count - 2.0) / max(1.0 - correlation**2, 1e-12))
        drift = slope * float(self._ends[1, row] - self._ends[0, row])
        left = np.sqrt(of_y * max(1.0 - correlation**2, 0.0) / count)
        likely = 2.0 * scipy.special.stdtr(count - 2.0, -size) < chance
        return float(drift) if likely and abs(drift) >= LEAST_DRIFT * left else 0.0
