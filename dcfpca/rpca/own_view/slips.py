"""Entries that would be ordinary but for a slip: a decimal point, a unit, a sign, or two features exchanged. Pure.

An entry that lies moderately off is no proof of an error. But if its tenth is just what the others predict, and the
same is true of a dozen other entries of this site, then a dozen decimal points are wrong here. So a site estimates from
its own entries how often each kind of slip happens (`slip_shares`), as a mixture with ordinary entries and with those
that are wrong in any other way. A kind counts only if the site's entries give clear evidence of it: where nobody makes
slips, none is found. Then an entry is flagged where slips are far likelier than chance (`slipped`). Nothing of this
leaves the site.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.calibration.calibration import Calibration
from dcfpca.rpca.calibration.empirical_null import BROAD
from dcfpca.rpca.calibration.expectation import Expected, expect, tail_variance
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.stage import Snapshot

SHIFTS = {10.0: "ten times too large", 0.1: "ten times too small", 100.0: "a hundred times too large",
          0.01: "a hundred times too small"}  # fmt: skip
UNITS = {
    "in lb instead of kg": (2.20462, 0.0), "in kg instead of lb": (1 / 2.20462, 0.0),
    "in cm instead of inches": (2.54, 0.0), "in inches instead of cm": (1 / 2.54, 0.0),
    "in °F instead of °C": (1.8, 32.0), "in °C instead of °F": (1 / 1.8, -32.0 / 1.8),
    "in mg/dL instead of mmol/L, as of glucose": (18.016, 0.0),
    "in mmol/L instead of mg/dL, as of glucose": (1 / 18.016, 0.0),
    "in mg/dL instead of mmol/L, as of cholesterol": (38.67, 0.0),
    "in mmol/L instead of mg/dL, as of cholesterol": (1 / 38.67, 0.0),
}  # fmt: skip
"""Found = factor · meant + offset."""
KINDS = np.array([(factor, 0.0) for factor in SHIFTS] + list(UNITS.values()) + [(-1.0, 0.0)])
DOUBTFUL = 2.0  # deviations: an entry nearer to what is expected needs no slip to explain it
DIFFERENT = 0.5  # spreads: a slip that moves a value by less is none that matters
EVIDENCE = 8.0  # a logarithm: of sites without slips, 1 in 1000 has as much for a kind by chance
HABIT = 2.5  # slips of a kind: with fewer, two values of a long tail might look alike
NONE = 100.0  # entries without a slip assumed before any is seen, and a tenth as many samples
STEPS = 40  # of the estimation of shares, which converges long before
MOST_EXCHANGED = 12  # doubtful entries of a sample, the furthest off, of which any two may be exchanged
FURTHEST = 1e100  # of a size
LARGEST = 50.0  # of a logarithm of odds
SLIPS, DATA_UNITS = "own/slips", "own/units"  # of a site's own arrays
Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Slips:
    """How often a site's entries are slips of each of KINDS, and its samples have two entries exchanged; 0 where its
    entries give no evidence. `centre` and `scale` (m) lead to the data's own units, in which slips are made; `local` is
    the share of ordinary ones among entries that are just flagged."""

    shares: FloatArray
    exchanged: float
    local: float
    centre: FloatArray
    scale: FloatArray

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """As a site keeps them."""
        return {
            SLIPS: np.concatenate([self.shares, [self.exchanged, self.local]]),
            DATA_UNITS: np.stack([self.centre, self.scale]),
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Doubtful:
    """Entries that lie off, by row and column: the odds of each kind of slip (kinds × entries) and of any other error
    against an ordinary entry, before it is known how often they happen."""

    rows: Places
    columns: Places
    slips: FloatArray
    others: FloatArray

    def totals(self, shares: FloatArray) -> FloatArray:
        """How likely entries are, in units of how likely ordinary ones are."""
        return np.asarray(1.0 - shares.sum() + shares @ self.slips + self.others)


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Two doubtful entries of one sample each, and the odds that they are exchanged."""

    first: Places  # places among the doubtful entries
    second: Places
    odds: FloatArray


class _Judge:
    """How likely values are in place of entries of these columns, given what the other entries predict."""

    def __init__(self, known: Calibration, samples: float, M: FloatArray, found: Expected, units: FloatArray) -> None:
        self.known, self.samples, self.M, self.found = known, samples, M, found
        self.centre, self.scale = units

    def doubtful(self) -> _Doubtful:
        """The doubtful entries, those of few values left out: they have no density."""
        side = np.where(self.found.z > 0.0, self.known.above[:, None], self.known.below[:, None])
        sizes = np.where(np.isnan(self.found.z) | self.known.of_few_values[:, None], 0.0, np.abs(self.found.z) / side)
        rows, columns = np.nonzero(sizes > DOUBTFUL)
        own = self.known.shape.at(rows, self.M[rows, columns][None, :])
        usual = self._log_density(rows, columns, *own)[0]
        meant = (self._raw(rows, columns) - KINDS[:, 1:]) / KINDS[:, :1]
        meant = (meant - self.centre[rows]) / self.scale[rows]
        found = self._log_density(rows, columns, *self.known.shape.at(rows, meant)) - np.log(np.abs(KINDS[:, :1]))
        found = np.where(np.abs(meant - self.M[rows, columns]) < DIFFERENT, -LARGEST, found - usual)
        size = np.maximum(sizes[rows, columns], BROAD[0])
        broad = np.log(self.known.wrong / (2.0 * size * np.log(BROAD[1] / BROAD[0])))
        others = broad - self._log_student(sizes[rows, columns])
        return _Doubtful(rows, columns, _odds(found), _odds(others))

    def pairs(self, found: _Doubtful) -> _Pairs:
        """Doubtful entries of one sample that fit each other's features better than their own. Features of few values
        are left out: many of their values are equal, so an exchange would show nothing."""
        first, second = self._candidates(found)
        rows, columns = (found.rows[first], found.rows[second]), found.columns[first]
        own = [self.M[row, columns] for row in rows]
        other = [(self._raw(rows[1 - k], columns) - self.centre[rows[k]]) / self.scale[rows[k]] for k in (0, 1)]
        gain = sum(
            self._log_density(row, columns, *self.known.shape.at(row, np.stack([there, here])))
            for row, there, here in zip(rows, other, own, strict=True)
        )
        better = np.flatnonzero(np.asarray(gain)[0] > np.asarray(gain)[1]) if first.size else first
        first, second = first[better], second[better]
        rows, columns = (rows[0][better], rows[1][better]), columns[better]
        values = [np.stack([other[k][better], own[k][better]]) for k in (0, 1)]
        exchanged, kept = self._together(rows, columns, values) if better.size else np.zeros((2, 0))
        return _Pairs(first, second, _odds(exchanged - kept))

    def _candidates(self, found: _Doubtful) -> tuple[Places, Places]:
        sizes = np.abs(self.found.z[found.rows, found.columns])
        usable = np.flatnonzero(self.known.reach[found.rows] <= 1.0)
        order = usable[np.lexsort((-sizes[usable], found.columns[usable]))]
        ends = np.flatnonzero(np.diff(found.columns[order])) + 1
        pairs = [pair for group in np.split(order, ends) for pair in combinations(group[:MOST_EXCHANGED], 2)]
        first, second = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
        return first, second

    def _together(self, rows: tuple[Places, Places], columns: Places, values: list[FloatArray]) -> FloatArray:
        """Logarithms of how likely values of two entries are together, given the other entries of their samples."""
        model, place = self.known.model, np.arange(columns.size)
        scores = self.known.shape.forward(self.M[:, columns])
        trusted = self.found.trusted[:, columns].copy()
        trusted[rows[0], place] = trusted[rows[1], place] = False
        others = expect(model, scores, trusted)
        variance = others.deviation**2 + tail_variance(model, scores, trusted, self.samples)
        F, (a, b) = model.factor, rows
        shared = np.sum(F[a] * others.inverses.times(F[b]), axis=1)
        (score_a, slope_a), (score_b, slope_b) = (
            self.known.shape.at(row, one) for row, one in zip(rows, values, strict=True)
        )
        off = score_a - others.score[a, place]
        z = off / np.sqrt(variance[a, place])
        left = np.maximum(variance[b, place] - shared**2 / variance[a, place], 1e-12)
        expected = others.score[b, place] + shared / variance[a, place] * off
        both = self._log_side(a, z) + self._log_side(b, (score_b - expected) / np.sqrt(left))
        return np.asarray(both + np.log(slope_a) + np.log(slope_b))

    def _raw(self, rows: Places, columns: Places) -> FloatArray:
        return np.asarray(self.M[rows, columns] * self.scale[rows] + self.centre[rows])

    def _log_density(self, rows: Places, columns: Places, scores: FloatArray, slopes: FloatArray) -> FloatArray:
        """Of values with these scores and slopes in the place of entries, in the data's own units."""
        z = (scores - self.found.score[rows, columns]) / self.found.deviation[rows, columns]
        return np.asarray(self._log_side(rows, z) + np.log(slopes))

    def _log_side(self, rows: Places, z: FloatArray) -> FloatArray:
        return self._log_student(z / np.where(z > 0.0, self.known.above[rows], self.known.below[rows]))

    def _log_student(self, z: FloatArray) -> FloatArray:
        # Beyond sizes that can be squared, all sizes are equally unlikely.
        freedom, t = self.known.freedom, np.clip(z / self.known.unit, -FURTHEST, FURTHEST)
        peak = scipy.special.gammaln(0.5 * (freedom + 1.0)) - scipy.special.gammaln(0.5 * freedom)
        peak -= 0.5 * np.log(np.pi * freedom) + np.log(self.known.unit)
        return np.asarray(peak - 0.5 * (freedom + 1.0) * np.log1p(t**2 / freedom))


def slip_shares(
    known: Calibration, samples: float, M: FloatArray, found: Expected, units: FloatArray, local: float
) -> Slips:
    """How often a site with these columns makes each slip. `found` is what the others say of their entries, `units` the
    centre and scale that they are in; `samples` are those of all sites."""
    judge = _Judge(known, samples, M, found, units)
    doubtful = judge.doubtful()
    entries = int(np.count_nonzero(~np.isnan(M[~known.of_few_values])))
    alone = [_estimated(doubtful, entries, np.arange(len(KINDS)) == kind) for kind in range(len(KINDS))]
    habits = np.array([gain > EVIDENCE and share.sum() * entries > HABIT for share, gain in alone])
    shares = _estimated(doubtful, entries, habits)[0]
    exchanged, gain = _estimated_pairs(doubtful, judge.pairs(doubtful), shares, known, M.shape[1])
    habit = gain > EVIDENCE and exchanged * M.shape[1] > HABIT
    return Slips(shares, exchanged if habit else 0.0, local, *units)


def slipped(slips: Slips, known: Calibration, samples: float, M: FloatArray, found: Expected) -> NDArray[np.bool_]:
    """Which entries (m × n) are flagged because a slip is far likelier than an ordinary entry."""
    flagged = np.zeros(M.shape, dtype=bool)
    if not (slips.shares.any() or slips.exchanged):
        return flagged
    judge = _Judge(known, samples, M, found, np.stack([slips.centre, slips.scale]))
    doubtful = judge.doubtful()
    by_slip, ordinary = slips.shares @ doubtful.slips, 1.0 - slips.shares.sum()
    likely = ordinary < slips.local * (ordinary + by_slip)
    if slips.exchanged:
        pairs = judge.pairs(doubtful)
        odds = slips.exchanged * _pair_odds(doubtful, pairs, slips.shares, known)
        total = 1.0 - slips.exchanged + np.bincount(doubtful.columns[pairs.first], odds, minlength=M.shape[1])
        sure = odds > (1.0 - slips.local) * total[doubtful.columns[pairs.first]]
        likely[pairs.first[sure]] = likely[pairs.second[sure]] = True
    flagged[doubtful.rows, doubtful.columns] = likely
    return flagged


def _odds(log: FloatArray) -> FloatArray:
    return np.asarray(np.exp(np.clip(log, -LARGEST, LARGEST)))


def _estimated(found: _Doubtful, entries: int, kinds: NDArray[np.bool_]) -> tuple[FloatArray, float]:
    """The likeliest shares of these kinds of slips, and by how much they make the entries likelier, as a logarithm."""
    shares = np.where(kinds, 0.003, 0.0)
    for _ in range(STEPS if kinds.any() else 0):
        shares = shares * np.sum(found.slips / found.totals(shares), axis=1) / (entries + NONE)
    gain = np.sum(np.log(found.totals(shares) / found.totals(np.zeros(len(shares)))))
    return shares, float(gain + (entries - found.rows.size) * np.log1p(-shares.sum()))


def _pair_odds(found: _Doubtful, pairs: _Pairs, shares: FloatArray, known: Calibration) -> FloatArray:
    """The odds of each pair against two entries that have nothing to do with each other, one of as many pairs as a
    sample has."""
    alone, usable = found.totals(shares), int(np.count_nonzero((known.few == 0.0) & (known.reach <= 1.0)))
    return np.asarray(pairs.odds / (alone[pairs.first] * alone[pairs.second]) / max(usable * (usable - 1) / 2, 1.0))


def _estimated_pairs(
    found: _Doubtful, pairs: _Pairs, shares: FloatArray, known: Calibration, samples: int
) -> tuple[float, float]:
    """The likeliest share of samples with two entries exchanged, and the evidence for it."""
    odds = np.bincount(found.columns[pairs.first], _pair_odds(found, pairs, shares, known), minlength=samples)
    share = 0.01
    for _ in range(STEPS):
        share = float(np.sum(share * odds / (1.0 - share + share * odds))) / (samples + 0.1 * NONE)
    return share, float(np.sum(np.log(1.0 - share + share * odds)))


def kept_slips(kept: Snapshot) -> Slips | None:
    """The slips that a site kept; None if it looked for none."""
    if SLIPS not in kept:
        return None
    figures, units = (np.asarray(kept[name], dtype=np.float64) for name in (SLIPS, DATA_UNITS))
    return Slips(figures[:-2], float(figures[-2]), float(figures[-1]), *units)
