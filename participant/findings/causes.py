"""The simplest story that makes a flagged entry ordinary: a decimal shift, a unit, a sign, two features swapped, a code
for missing, the value of the sample before, or digits transposed. Pure.

Each story says which value was meant. How likely it makes what was found is how likely the model holds that value, and
for a code or a copy how likely it is to meet exactly that number. The stories compete with each other and with "none of
these"; one is told only if it is more likely than all others together by far, and its value is ordinary.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dcfpca.rpca.method import Columns, FloatArray
from dcfpca.rpca.own_view.slips import SHIFTS, UNITS
from participant.data.facts import CODES
from participant.findings.written_numbers import WrittenFeature, feature_of, transposed

DECIMAL, UNIT, SIGN, SWAPPED, CODE, COPIED, DIGITS = "decimal", "unit", "sign", "swapped", "code", "copied", "digits"
KINDS = (DECIMAL, UNIT, SIGN, SWAPPED, CODE, COPIED, DIGITS)
UNIT_NAMES = {
    "kg": re.compile(r"weight|(?<![a-z])(mass|wt|kg|lbs?(?![a-z]))", re.I),
    "cm": re.compile(r"height|length|waist|girth|circumf|(?<![a-z])(cm|inch)(?![a-z])", re.I),
    "°C": re.compile(r"(?<![a-z])temp|celsius|fahrenheit", re.I),
    "glucose": re.compile(r"gluc|sugar", re.I),
    "cholesterol": re.compile(r"(?<![a-z])(chol|hdl|ldl)", re.I),
}
"""What features in such a unit are called; where a name tells, the other units are unlikely."""
ORDINARY = 2.5
"""|z| of a value that needs no story."""
NONE_OF_THESE = 0.5
"""How likely a flagged entry has no such story, before anything is known of it or of others."""
SURE = 0.8
MOST_EXPLAINED = 400
"""Entries, the furthest off first: each is judged again with some twenty values, and the whole sample with it. Above
1,747 features fewer are, as many as take half a minute."""
NAMED, OTHERWISE_NAMED = 4.0, 0.01
"""How likely a unit is beside other kinds of error in a feature that is called so, and in one called otherwise."""
_PARTNERS = 6
_STEPS, _KNOWN = 20, 60.0  # of the estimation of shares; flagged entries that those of before count as
MOST_SAMPLED = 4096  # of the first samples, by which a feature is known
_TRIALS, _BATCH, _MOST_JUDGED = 24, 1 << 18, 1 << 24
"""Trials of an entry, about; entries of trials that are judged at once, and in all."""
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, slots=True)
class Cause:
    """A story of one of KINDS, in words, and the value that was meant; NaN where the story does not tell it."""

    kind: str
    sentence: str
    corrected: float = math.nan


@dataclass(frozen=True, slots=True, eq=False)
class Flagged:
    """A flagged entry: its feature, its sample, what was expected there, and how far off it is."""

    row: int
    column: int
    expected: float
    z: float


@dataclass(slots=True, eq=False)
class _Story:
    cause: Cause
    log_mass: float  # of what was found, without the model's part
    values: dict[int, float] = field(default_factory=dict)  # to be judged, by feature; none where nothing is meant


def explain(
    columns: Columns,
    judge: Callable[[FloatArray], FloatArray],
    deviation: FloatArray,
    names: Sequence[str],
    flagged: Sequence[Flagged],
) -> list[Cause | None]:
    """The story of each flagged entry; None where none is likely enough, and beyond MOST_EXPLAINED.

    `judge` gives z for every entry of some columns, `deviation` is one of every feature in its own unit.
    """
    rows = columns.shape[0]
    most = min(MOST_EXPLAINED, max(_MOST_JUDGED // (_TRIALS * rows), 1))
    chosen = sorted(range(len(flagged)), key=lambda k: -abs(flagged[k].z))[:most]
    chosen.sort(key=lambda k: flagged[k].column)
    odd = {(one.row, one.column) for one in flagged}
    explainer = _Explainer(columns, judge, names, _Features(columns, deviation, flagged), odd)
    found, at_once = list[Cause | None]([None] * len(flagged)), max(_BATCH // (_TRIALS * rows), 1)
    batches = (chosen[start : start + at_once] for start in range(0, len(chosen), at_once))
    judged = [one for places in batches for one in explainer.judged([flagged[k] for k in places])]
    shares = kind_shares(judged)
    for place, one in zip(chosen, judged, strict=True):
        found[place] = one.told(shares)
    return found


@dataclass(frozen=True, slots=True)
class Judged:
    """How likely each story, by KINDS, makes a flagged entry, and whether what it says was meant is ordinary; and how
    likely no story does."""

    none: float
    stories: tuple[tuple[float, Cause, bool], ...]

    def by_kind(self) -> FloatArray:
        """How likely the stories of each kind make it together, and last how likely none does."""
        sums = dict.fromkeys(KINDS, 0.0)
        for mass, cause, _ in self.stories:
            sums[cause.kind] += mass
        return np.array([*sums.values(), self.none])

    def told(self, shares: FloatArray) -> Cause | None:
        """The story that is likely enough, if kinds and none have these shares."""
        weighed = [(mass * float(shares[KINDS.index(cause.kind)]), cause, usual) for mass, cause, usual in self.stories]
        total = float(shares[-1]) * self.none + sum(mass for mass, _, _ in weighed)
        return _told(sorted(weighed, key=lambda one: -one[0]), SURE * total)


def kind_shares(judged: Sequence[Judged]) -> FloatArray:
    """How often flagged entries have a story of each kind, and last how often none, as these entries say: who misplaces
    one decimal point misplaces others, too."""
    usual = np.append(np.full(len(KINDS), (1.0 - NONE_OF_THESE) / len(KINDS)), NONE_OF_THESE)
    masses, shares = np.array([one.by_kind() for one in judged]).reshape(-1, len(usual)), usual
    for _ in range(_STEPS):
        weighed = shares * masses
        likely = weighed / np.maximum(weighed.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        shares = (likely.sum(axis=0) + _KNOWN * usual) / (len(masses) + _KNOWN)
    return np.asarray(shares)


class _Features:
    """The features by number, each looked at when it is first asked for; by the first samples."""

    def __init__(self, columns: Columns, deviation: FloatArray, flagged: Sequence[Flagged]) -> None:
        rows, count = columns.shape
        self._M = np.array(columns.read(0, min(count, max(4 * _BATCH // rows, 50), MOST_SAMPLED)), dtype=np.float64)
        self._deviation, self._known = deviation, dict[int, WrittenFeature]()
        for one in flagged:
            if one.column < self._M.shape[1]:
                self._M[one.row, one.column] = math.nan

    def __getitem__(self, row: int) -> WrittenFeature:
        if row not in self._known:
            values = self._M[row][~np.isnan(self._M[row])]
            self._known[row] = feature_of(values, float(self._deviation[row]))
        return self._known[row]


@dataclass(frozen=True, slots=True, eq=False)
class _Explainer:
    columns: Columns
    judge: Callable[[FloatArray], FloatArray]
    names: Sequence[str]
    features: _Features
    odd: set[tuple[int, int]]

    def judged(self, entries: Sequence[Flagged]) -> Iterator[Judged]:
        """The stories of some entries, judged together."""
        samples = {one.column: self._sample(one.column) for one in entries}
        before = dict(zip(samples, self.judge(np.column_stack(list(samples.values()))).T, strict=True))
        told = [list(self._stories(one, samples[one.column], before[one.column])) for one in entries]
        trials = [
            _with(samples[one.column], story.values)
            for one, stories in zip(entries, told, strict=True)
            for story in stories
            if story.values
        ]
        after = iter(self.judge(np.column_stack(trials)).T if trials else ())
        for one, stories in zip(entries, told, strict=True):
            judged = [(story, next(after) if story.values else None) for story in stories]
            yield self._weighed(one, float(samples[one.column][one.row]), judged, before[one.column])

    def _sample(self, column: int) -> FloatArray:
        return np.asarray(self.columns.read(column, column + 1)[:, 0], dtype=np.float64)

    def _stories(self, one: Flagged, sample: FloatArray, z: FloatArray) -> Iterator[_Story]:
        """Every story that could lead to this value, with how likely it does so."""
        x, row, own = float(sample[one.row]), one.row, self.features[one.row]
        yield from _numeric_stories(x, row, own, self.names[row])
        if x in CODES and (x < own.least or (x >= 99.0 and not own.counts[x])):
            yield _Story(Cause(CODE, f"{x:g} stands for missing"), -math.log(len(CODES)))
        ordinary_above = one.column > 0 and (row, one.column - 1) not in self.odd
        if ordinary_above and x == self._sample(one.column - 1)[row]:
            yield _Story(Cause(COPIED, "the value of the sample before"), 0.0)
        sizes = np.nan_to_num(np.abs(z))
        partners = [int(k) for k in np.argsort(-sizes)[: _PARTNERS + 1] if k != row and sizes[k] > 2.0]
        for other in partners:
            its, there = self.features[other], float(sample[other])
            digits = own.mass(there) * its.mass(x) / its.mass(there)
            cause = Cause(SWAPPED, f"swapped with {self.names[other]}", there)
            yield _Story(cause, math.log(digits / len(partners)), {row: there, other: x})

    def _weighed(
        self, one: Flagged, x: float, judged: Sequence[tuple[_Story, FloatArray | None]], before: FloatArray
    ) -> Judged:
        own = self.features[one.row]
        off = abs(x - one.expected) / own.deviation
        # A value that is merely extreme lies anywhere, and is written as the others of its feature are.
        anywhere = own.mass(x) / (20.0 * max(off, 1.0))
        stories = list[tuple[float, Cause, bool]]()
        for story, after in judged:
            usual = after is None or all(abs(after[k]) <= ORDINARY for k in story.values)
            stories.append((math.exp(self._log_mass(one, story, after, before)), story.cause, usual))
        return Judged(max(anywhere, own.share(x)), tuple(stories))

    def _log_mass(self, one: Flagged, story: _Story, after: FloatArray | None, before: FloatArray) -> float:
        """How likely the story makes what was found, beside what other stories say of the sample's other entries."""
        found = story.log_mass
        if after is None:
            return found
        for row in story.values:
            found += _log_density(after[row])
            if row != one.row:
                found -= max(_log_density(before[row]), math.log(1e-3))
        return min(found, 50.0)


def _told(stories: Sequence[tuple[float, Cause, bool]], enough: float) -> Cause | None:
    """The likeliest story if it has enough of the weight, or the two likeliest if they are of one kind and have it
    together; what was meant is said if they agree. None unless what was meant would be ordinary."""
    for mass, cause, ordinary in stories[:1]:
        if not ordinary:
            return None
        if mass >= enough:
            return cause
        for second, other, also in stories[1:2]:
            if also and other.kind == cause.kind and mass + second >= enough:
                alike = math.isclose(cause.corrected, other.corrected, rel_tol=0.02)
                meant = cause.corrected if alike else math.nan
                return Cause(cause.kind, f"{cause.sentence}, or {other.sentence}", meant)
    return None


def _unit_shares(name: str) -> dict[str, float]:
    """How likely each of UNITS is in a feature of this name, before anything else is known."""
    if not (named := [unit for unit, pattern in UNIT_NAMES.items() if pattern.search(name)]):
        return dict.fromkeys(UNITS, 1.0 / len(UNITS))
    return {words: NAMED if any(unit in words for unit in named) else OTHERWISE_NAMED for words in UNITS}


def _numeric_stories(x: float, row: int, own: WrittenFeature, name: str) -> Iterator[_Story]:
    """Those that a number tells by itself: shifted, in another unit, with another sign, with transposed digits."""
    for factor, words in SHIFTS.items():
        if x:
            meant = _tidy(x / factor, 10)
            yield _Story(Cause(DECIMAL, words, meant), math.log(own.mass(meant) / len(SHIFTS)), {row: meant})
    shares = _unit_shares(name)
    for words, (factor, offset) in UNITS.items():
        meant = (x - offset) / factor
        if mass := own.mass_converted(meant, factor, offset, x):
            told = _tidy(round(meant, own.places), 4)  # as it can be written here
            yield _Story(Cause(UNIT, words, told), math.log(mass * shares[words]), {row: meant})
    if x:
        yield _Story(Cause(SIGN, "the sign", -x), math.log(own.mass(x)), {row: -x})
    swaps = list(transposed(x))
    for meant in swaps:
        mass = own.mass(meant) / len(swaps)
        yield _Story(Cause(DIGITS, "digits transposed", meant), math.log(mass), {row: meant})


def _with(sample: FloatArray, values: dict[int, float]) -> FloatArray:
    changed = sample.copy()
    changed[list(values)] = list(values.values())
    return changed


def _log_density(z: float) -> float:
    return -math.inf if math.isnan(z) else -0.5 * z * z - _HALF_LOG_TWO_PI


def _tidy(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
