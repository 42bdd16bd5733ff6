"""Robust centring and scaling per feature, agreed in the spec and found by sums alone.

Stage `median` finds each feature's median over all sites, stage `deviation` the median distance from it (MAD), both
digit by digit: every float64 has a place in the order of all float64s, a 64-bit number. Sites count how many of their
entries fall into each of 2^bits equal intervals of that order. The sum of the counts gives the interval of the median,
which the next round divides, until few entries of any feature lie in it. This works whatever the size of the numbers
and, where nothing is merged (`small_cells`), however they are split over sites. The stages after these see
(x − centre)/scale, and each site maps its result back. With `auto`, centre and scale are 0 and 1 if the features share
unit and level.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.method import Consensus, FloatArray, Layout, ResultBlock, TensorMessage, Total
from dcfpca.rpca.round_limits import BEFORE_UNITS, DEVIATION_DIGITS, MEDIAN_DIGITS, WHOLE
from dcfpca.rpca.small_cells import merge_cells
from dcfpca.rpca.stage import Stage, StageAround, View
from dcfpca.rpca.stage_checks import APART, broken_count, of_figures, unequal, worst
from dcfpca.rpca.stage_list import Method, StagedSite
from dcfpca.rpca.thresholds import NORMAL_MEDIAN

MEDIAN, DEVIATION = "median", "deviation"
ENTRIES = "entries"  # the key of each feature's number of entries in a consensus' memory

RESOLUTION = 4e-9  # of a centre, which 28 binary digits tell
FEW_BITS, MANY_BITS = 6, 10  # per round; few where many features would make the counts large
LEAST_FOUND = 18  # bits: sign, exponent, and enough of the mantissa for small whole numbers
NARROW = 1.0 / 20.0  # of a feature's entries: an interval with fewer is as good as its median
SAME_LEVEL = 6.0  # scales: features whose medians are all within it lie about zero …
SAME_UNIT = 20.0  # … and share a unit where their scales, but for a tenth at either end, are within this factor

_SIGN = np.uint64(1 << 63)
Keys = NDArray[np.uint64]


def keys_of(values: FloatArray) -> Keys:
    """The rank of each float among all floats, as an integer key; −0 is 0."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def values_of(keys: Keys) -> FloatArray:
    """Inverse of `keys_of`."""
    return np.ascontiguousarray(np.where(keys & _SIGN, keys & ~_SIGN, ~keys)).view(np.float64)


def count(values: FloatArray, prefix: FloatArray, digit: int, bits: int, signed: bool) -> FloatArray:
    """For each row, the number of entries with its prefix by next digit, and the number below or above the prefix.

    `prefix` are the digits found so far, as whole numbers; NaN entries are not counted. Where no value is negative
    (not `signed`) the digits begin after the sign.
    """
    rows, bins = values.shape[0], 1 << bits
    below, above = bins, bins + 1
    keys = keys_of(values) if signed else keys_of(values) << np.uint64(1)
    keys = keys >> np.uint64(64 - bits * (digit + 1))
    first = (prefix.astype(np.uint64) << np.uint64(bits))[:, None]
    place = np.where(keys < first, below, np.minimum(keys - first, above)).astype(np.intp)
    place[(keys >= first) & (keys - first >= bins)] = above
    flat = (place + (bins + 2) * np.arange(rows)[:, None])[~np.isnan(values)]
    return np.bincount(flat, minlength=rows * (bins + 2)).reshape(rows, bins + 2).astype(np.float64)


def refine(counts: FloatArray, prefix: FloatArray) -> tuple[FloatArray, bool]:
    """The prefix with one more digit, the interval in which half of all entries is reached; and whether every feature's
    interval is narrow enough.

    Counts outside the prefix are taken again in each round, so that a site that drops out moves the median, as it
    should, and does not break the count. If no site has enough entries for a cell within the prefix, the median is as
    precise as the site's smallest cells allow: its further digits are those of the middle.
    """
    counted = np.rint(counts)
    inside, entries = counted[:, :-2], counted.sum(axis=1)
    bins = inside.shape[1]
    wanted = np.ceil(entries / 2.0) - counted[:, -2]
    reached = np.cumsum(inside, axis=1) >= np.maximum(wanted, 1.0)[:, None]
    beyond = np.where(inside.any(axis=1), bins - 1, bins // 2)
    digit = np.where(reached.any(axis=1), reached.argmax(axis=1), beyond)
    held = inside.sum(axis=1)
    narrow = np.take_along_axis(inside, digit[:, None], axis=1)[:, 0] <= np.maximum(NARROW * entries, 1.0)
    # A value that many entries have ends in zeros, or in ones if it is negative, unless it is a long fraction.
    one_value = np.maximum(inside[:, 0], inside[:, -1]) == held
    return prefix * bins + digit, bool((narrow | one_value).all())


def value_of_prefix(prefix: FloatArray, found: int, signed: bool) -> FloatArray:
    """The median once this many bits are found: of the numbers that begin with them, the one nearest to zero."""
    spare = np.uint64(64 - found)
    low = prefix.astype(np.uint64) << spare
    if not signed:
        return values_of((low >> np.uint64(1)) | _SIGN)
    last = low | ((np.uint64(1) << spare) - np.uint64(1))
    return values_of(np.where(low & _SIGN, low, last))


class MedianSearch(Stage):
    """The rounds of one median: of the entries, or of their distances from a centre that was found before.

    The broadcast has the digits found so far, the centre, and how many digits there are.
    """

    def __init__(self, name: str, rows: int, then: str, *, auto: bool) -> None:
        self.bits = MANY_BITS if rows <= WHOLE else FEW_BITS
        self.most = (MEDIAN_DIGITS if name == MEDIAN else DEVIATION_DIGITS)[rows > WHOLE]
        self._auto, self._signed = auto, name == MEDIAN
        up = Layout(rows, (1 << self.bits) + 2)
        super().__init__(name, down=Layout(rows, 2, 1), up=up, then=(name, then))

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """Counts of the site's entries by feature and next digit."""
        (prefix, centre), digit = asked.broadcast.tensor.T, int(asked.broadcast.scalars[0])
        columns, counts = site.view.own, np.zeros((self.up.rows, self.up.columns))
        for start, stop in blocks(columns):
            values = columns.read(start, stop)
            if self.name == DEVIATION:
                values = np.abs(values - centre[:, None])
            counts += count(values, prefix, digit, self.bits, self._signed)
        return TensorMessage(counts, np.zeros(0))

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """Counts with small cells merged, the line running from what is below the prefix to what is above it."""
        inside, below, above = np.split(exact.tensor, [-2, -1], axis=1)
        line = merge_cells(np.column_stack([below, inside, above]), least)
        return TensorMessage(np.column_stack([line[:, 1:-1], line[:, 0], line[:, -1]]), exact.scalars)

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """One more digit; after the last one, or when every median is known well enough, the stage that follows."""
        (prefix, centre), digit = consensus.broadcast.tensor.T, int(consensus.broadcast.scalars[0]) + 1
        prefix, enough = refine(total.sums.tensor, prefix)
        memory = {**consensus.memory, ENTRIES: np.rint(total.sums.tensor).sum(axis=1)}
        after = replace(consensus, round=consensus.round + 1, memory=memory)
        if digit < self.most and not (enough and self.bits * digit >= LEAST_FOUND):
            return replace(after, broadcast=_state(prefix, centre, digit))
        found, then = value_of_prefix(prefix, self.bits * digit, self._signed), self.then[-1]
        if self.name == MEDIAN:
            return replace(after, stage=then, broadcast=_state(np.zeros_like(prefix), found, 0))
        units = centre, scale_from_mad(found, centre)
        if self._auto and share_unit_and_level(centre, found):
            units = centre, -units[1]  # announced for sites to compare with theirs, and not applied
        return replace(after, stage=then, broadcast=TensorMessage(np.zeros((0, 0)), np.concatenate(units)))

    def plausible(self, announced: Consensus, before: Consensus | None, precision: int) -> str:
        """A round adds one digit to a median, and the centre never changes once it is settled."""
        (digits, centre), number = announced.broadcast.tensor.T, float(announced.broadcast.scalars[0])
        bins = 1 << self.bits
        if number not in range(self.most):
            return "a median has an impossible number of digits"
        whole = np.array_equal(digits, np.rint(digits)) and ((digits >= 0) & (digits < bins**number)).all()
        if not whole:
            return "the digits of a median are not whole numbers of the round's length"
        if before is None or before.stage != self.name or before.round == announced.round:
            return ""
        (digits_before, centre_before), number_before = before.broadcast.tensor.T, float(before.broadcast.scalars[0])
        if number - number_before != announced.round - before.round:
            return "the digits of a median do not grow by one each round"
        if not np.array_equal(np.floor(digits / bins ** (number - number_before)), digits_before):
            return "the digits of a median do not continue those of the round before"
        same = np.array_equal(centre, centre_before)
        return "" if same else "the features' centres are not those of the round before"

    def difference(self, expected: Consensus, announced: TensorMessage) -> float:
        """Digits follow from whole numbers, and centres from digits: nothing is rounded."""
        true = expected.broadcast
        same = np.array_equal(true.tensor, announced.tensor) and np.array_equal(true.scalars, announced.scalars)
        return 0.0 if same else APART

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """Every entry of a feature is counted once in every round, so that the counts always add up to the same."""
        counts, rounding = total.sums.tensor, total.rounding[0]
        if reason := broken_count(counts, rounding, what="a count of entries"):
            return reason
        entries = consensus.memory.get(ENTRIES)
        if entries is not None and total.whole and unequal(counts.sum(axis=1), entries, self.up.columns * rounding):
            return "the counts of a feature do not add up to its entries in the round before"
        return ""


class InUnits(StageAround):
    """A stage on (x − centre)/scale: both stand at the end of its broadcast, so that a site needs no earlier one."""

    def __init__(self, inner: Stage, rows: int) -> None:
        down = inner.down
        super().__init__(inner, down=Layout(down.rows, down.columns, down.scalars + 2 * rows))
        self._rows = rows

    def inside(self, consensus: Consensus) -> Consensus:
        """Without centre and scale; a consensus from before they were found stays as it is."""
        if consensus.stage in BEFORE_UNITS:
            return consensus
        return replace(consensus, broadcast=split_broadcast(consensus.broadcast, self._rows)[0])

    def prepare(self, view: View, announced: Consensus) -> Consensus:
        """Apply the units of this broadcast to the site's columns."""
        assert view.scaled is not None  # a method with such stages is `scaled`
        inner, view.scaled.centre, view.scaled.scale = split_broadcast(announced.broadcast, self._rows)
        return self.inner.prepare(view, replace(announced, broadcast=inner))

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The inner stage's next consensus, in the same units."""
        after = self.inner.advance(self.inside(consensus), total)
        scalars = np.concatenate([after.broadcast.scalars, consensus.broadcast.scalars[-2 * self._rows :]])
        return replace(after, broadcast=TensorMessage(after.broadcast.tensor, scalars))

    def plausible(self, announced: Consensus, before: Consensus | None, precision: int) -> str:
        """Scales are positive, and settled once."""
        scale = found_units(announced.broadcast, self._rows)[1]
        if not (scale > 0.0).all():
            return "a feature's scale is not positive"
        if before is not None and before.stage not in BEFORE_UNITS:
            units, earlier = (one.broadcast.scalars[-2 * self._rows :] for one in (announced, before))
            if not np.array_equal(units, earlier):
                return "the features' centres or scales are not those of the round before"
        return self.inner.plausible(self.inside(announced), before and self.inside(before), precision)

    def difference(self, expected: Consensus, announced: TensorMessage) -> float:
        """Each feature's centre and scale in its own size, and what the inner stage compares."""
        units, others = (np.split(one.scalars[-2 * self._rows :], 2) for one in (expected.broadcast, announced))
        apart = (of_figures(one, other) for one, other in zip(units, others, strict=True))
        return worst(*apart, super().difference(expected, announced))

    def finish(self, site: StagedSite, asked: Consensus) -> Iterator[ResultBlock]:
        """The inner result in the data's own units: L = centre + scale · U Vᵀ."""
        assert site.view.scaled is not None
        centre, scale = site.view.scaled.centre, site.view.scaled.scale
        for block in super().finish(site, asked):
            L = block.L * scale[:, None] + centre[:, None]
            # Not by a product of sparse matrices, which leaves out a flagged entry that equals L.
            S, found = block.S.copy(), block.findings
            S.data *= scale[S.indices]
            if found is not None:
                found = replace(found, expected=found.expected * scale[S.indices] + centre[S.indices])
            scanned = block.scanned and replace(block.scanned, centre=centre, scale=scale)
            yield replace(block, L=L, S=S, findings=found, scanned=scanned)

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """The inner stage's model, in scaled units, with the centre and scale by which L = centre + scale · (U Vᵀ)."""
        _, centre, scale = split_broadcast(consensus.broadcast, self._rows)
        inner = super().model(consensus)
        return inner | {"centre": centre + scale * inner.get("centre", 0.0), "scale": scale}


def in_robust_units(method: Method, *, auto: bool = False) -> Method:
    """The method on centred and scaled data, after rounds that find centre and scale; `auto` leaves features that share
    unit and level as they are."""
    rows, first = method.solver.rows, method.stages[0].name
    found = (MedianSearch(MEDIAN, rows, DEVIATION, auto=auto), MedianSearch(DEVIATION, rows, first, auto=auto))
    return replace(method, stages=(*found, *(InUnits(stage, rows) for stage in method.stages)), scaled=True)


def share_unit_and_level(median: FloatArray, deviation: FloatArray) -> bool:
    """Whether all features vary about zero, and by similar amounts. Then they are left as they are: dividing them by
    their scales would give features that hardly vary the weight of the others, and centring exact data can raise its
    rank by one. Features that mostly have one value do not count."""
    varies = varies_about(median, deviation)
    scale = scale_from_mad(deviation[varies], median[varies])
    if not varies.any() or (np.abs(median[varies]) > SAME_LEVEL * scale).any():
        return False
    low, high = np.quantile(scale, [0.1, 0.9])
    return bool(high <= SAME_UNIT * low)


def split_broadcast(broadcast: TensorMessage, rows: int) -> tuple[TensorMessage, FloatArray, FloatArray]:
    """The inner stage's broadcast, and the centre and the scale that it is in: negative scales are not applied."""
    scalars, centre, scale = np.split(broadcast.scalars, [-2 * rows, -rows])
    applied = (scale > 0.0).all()
    return (
        TensorMessage(broadcast.tensor, scalars),
        centre if applied else np.zeros(rows),
        scale if applied else np.ones(rows),
    )


def found_units(broadcast: TensorMessage, rows: int) -> tuple[FloatArray, FloatArray]:
    """Median and scale of every feature over all sites, applied or not; a scale of 1 may also mean that there is none
    (`scale_from_mad`)."""
    centre, scale = np.split(broadcast.scalars[-2 * rows :], 2)
    return centre, -scale if (scale < 0.0).all() else scale


def scale_from_mad(deviation: FloatArray, centre: FloatArray) -> FloatArray:
    """The deviation that corresponds to a MAD; 1 for a feature of which more than half the entries are equal."""
    return np.where(varies_about(centre, deviation), NORMAL_MEDIAN * deviation, 1.0)


def varies_about(centre: FloatArray, deviation: FloatArray) -> NDArray[np.bool_]:
    """Which features have a MAD above the precision with which centres are found. Half of a coin's entries miss its
    centre only by that precision."""
    return np.asarray(deviation > RESOLUTION * np.abs(centre))


def _state(prefix: FloatArray, centre: FloatArray, digit: int) -> TensorMessage:
    return TensorMessage(np.column_stack([prefix, centre]), np.array([float(digit)]))
