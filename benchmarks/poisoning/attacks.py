"""Attacks by sites that know the method, the world of the honest ones, and how many of both there are.

`data` is what a lying site holds; `update` is what it sends in place of its answer. Updates keep the laws that
`conserved` checks where the attacker can: counts, of ten times as many columns as others have, are moved, and
products stay within their bounds. (Counts of others cannot be taken away: sites send none below `min_cell`.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.poisoning.world import COLUMNS, World
from dcfpca.rpca.method import Consensus, FloatArray, TensorMessage
from dcfpca.rpca.refinement.closing_plan import COVARIANCE, NULL, REFINE, SHAPE, ClosingPlan
from dcfpca.rpca.refinement.refine import MOST_PULL
from dcfpca.rpca.stage import Site as StageSite

PLANTED = 4.0  # deviations of the pattern in the columns of a site that plants it
QUIETLY, BELOW = 1.0, 0.45  # the same, and octaves, of who stays below what other sites call clearly different
LARGE = 1e6
FEW_FEATURES = 5
MANY = 10  # times as many columns as the others


@dataclass(frozen=True, slots=True)
class Situation:
    """What a liar knows besides the world."""

    world: World
    honest: int
    liars: int


Data = Callable[[World, np.random.Generator], FloatArray]
Twist = Callable[[Situation, Consensus, TensorMessage], TensorMessage]


@dataclass(frozen=True, slots=True)
class Attack:
    """What liars hold, and what they send where that is not their answer."""

    name: str
    data: Data
    update: Twist | None = None


@dataclass(slots=True)
class LyingSite:
    """A site that sends what its attack makes of its answers."""

    inner: StageSite
    attack: Attack
    situation: Situation

    def answer(self, told: Consensus) -> TensorMessage:
        """The update."""
        true = self.inner.answer(told)
        return true if self.attack.update is None else self.attack.update(self.situation, told, true)


def _honest(world: World, rng: np.random.Generator) -> FloatArray:
    return world.site(rng).M


def _wrong_units(world: World, rng: np.random.Generator) -> FloatArray:
    M = _honest(world, rng)
    M[rng.choice(len(M), FEW_FEATURES, replace=False)] *= 1000.0
    return M


def _shuffled(world: World, rng: np.random.Generator) -> FloatArray:
    return _honest(world, rng)[rng.permutation(len(world.centre))]


def _duplicated(world: World, rng: np.random.Generator) -> FloatArray:
    return np.repeat(_honest(world, rng)[:, :5], COLUMNS // 5, axis=1)


def _garbage(world: World, rng: np.random.Generator) -> FloatArray:
    return np.asarray(world.centre[:, None] + 10.0 * rng.standard_cauchy(size=(len(world.centre), COLUMNS)))


def _constant(world: World, rng: np.random.Generator) -> FloatArray:
    return np.repeat(world.site(rng).M[:, :1], COLUMNS, axis=1)


def _other_population(world: World, rng: np.random.Generator) -> FloatArray:
    return World.drawn(rng).clean(rng)


def _large_other_population(world: World, rng: np.random.Generator) -> FloatArray:
    """More columns than all others together, and these do not obey `max_share`."""
    return World.drawn(rng).clean(rng, MANY * COLUMNS)


def _much_larger(world: World, rng: np.random.Generator) -> FloatArray:
    return 100.0 * World.drawn(rng).clean(rng)


def _with_pattern(world: World, rng: np.random.Generator) -> FloatArray:
    return world.clean(rng) + PLANTED * np.outer(world.pattern, rng.normal(size=COLUMNS))


def _with_quiet_pattern(world: World, rng: np.random.Generator) -> FloatArray:
    return world.clean(rng) + QUIETLY * np.outer(world.pattern, rng.normal(size=COLUMNS))


def _few_values(world: World, rng: np.random.Generator) -> FloatArray:
    """Many columns in which the pattern's features have one value, so that others have no unit for them."""
    M = _many(world, rng)
    M[world.pattern != 0.0] = world.centre[world.pattern != 0.0, None]
    return M


def _noiseless(world: World, rng: np.random.Generator) -> FloatArray:
    """Ten times as many columns without any noise, so that the noise of others looks large."""
    coefficients = rng.normal(size=(world.factors.shape[1], MANY * COLUMNS))
    return np.asarray(world.centre[:, None] + world.factors @ coefficients)


def _many(world: World, rng: np.random.Generator) -> FloatArray:
    return np.concatenate([_honest(world, rng) for _ in range(MANY)], axis=1)


def _large(situation: Situation, told: Consensus, true: TensorMessage) -> TensorMessage:
    return replace(true, tensor=LARGE * true.tensor) if told.stage == "fit" and told.round > 2 else true


def _pull(situation: Situation, told: Consensus, true: TensorMessage) -> TensorMessage:
    """Pull the last direction of the refinement to the pattern, half as far as any residuals of all sites could."""
    if told.stage != REFINE or not (last := ClosingPlan.of(told.broadcast).rank):
        return true
    width, tensor = ClosingPlan.of(told.broadcast).U.shape[1], true.tensor.copy()
    gram = np.zeros((width, width))
    pairs = width * (width + 1) // 2
    gram[np.triu_indices(width)] = true.scalars[2 + width : 2 + width + pairs]
    squares = gram[last - 1, last - 1] * (situation.honest + situation.liars)
    tensor[:, last - 1] += 0.5 * MOST_PULL * np.sqrt(squares) / situation.liars * situation.world.pattern
    return replace(true, tensor=tensor)


def _counts_moved(stage: str, octaves: float, features: slice) -> Twist:
    def moved(situation: Situation, told: Consensus, true: TensorMessage) -> TensorMessage:
        if told.stage != stage:
            return true
        sides = [_shifted(side, octaves) for side in np.split(true.tensor, 2, axis=1)]
        tensor = true.tensor.copy()
        tensor[features] = np.column_stack(sides)[features]
        return replace(true, tensor=_whole(tensor, told))

    return moved


def _shifted(counts: FloatArray, octaves: float) -> FloatArray:
    """Counts of sizes that are so many octaves larger."""
    by = int(octaves * counts.shape[1] / 14)  # bins span 14 octaves
    place = np.clip(np.arange(counts.shape[1]) + by, 0, counts.shape[1] - 1)
    moved = np.zeros_like(counts)
    np.add.at(moved.T, place, counts.T)
    return moved


def _whole(tensor: FloatArray, told: Consensus) -> FloatArray:
    """Counts as whole numbers of entries that add up to what they did."""
    unit = ClosingPlan.of(told.broadcast).columns if told.stage == NULL else 1.0
    counts, total = np.rint(tensor * unit), np.rint(tensor.sum(axis=1) * unit)
    counts[:, np.argmax(counts.sum(axis=0))] += total - counts.sum(axis=1)  # a bin that can spare some
    return counts / unit


def _covariance(situation: Situation, told: Consensus, true: TensorMessage) -> TensorMessage:
    """Add a direction to the covariance: the pattern."""
    if told.stage != COVARIANCE:
        return true
    tensor = true.tensor.copy()
    tensor[:, :-1] += PLANTED**2 / situation.liars * np.outer(situation.world.pattern, situation.world.pattern)
    return replace(true, tensor=tensor)


def _made_up_covariance(situation: Situation, told: Consensus, true: TensorMessage) -> TensorMessage:
    """Products of scores that nobody has, and so large that nothing else is seen beside them."""
    if told.stage != COVARIANCE:
        return true
    tensor, rng = true.tensor.copy(), np.random.default_rng(told.round)
    factors = rng.normal(size=(len(tensor), len(tensor) // 2))
    tensor[:, :-1] = LARGE * factors @ factors.T
    return replace(true, tensor=tensor)


DATA_ONLY = (
    Attack("wrong units", _wrong_units),
    Attack("shuffled", _shuffled),
    Attack("duplicated", _duplicated),
    Attack("garbage", _garbage),
    Attack("constant", _constant),
    Attack("other population", _other_population),
    Attack("most columns of another population", _large_other_population),
    Attack("population x 100", _much_larger),
    Attack("hides a pattern", _with_pattern),
    Attack("flags the healthy", _noiseless),
    Attack("adaptive: quiet pattern", _with_quiet_pattern),
    Attack("adaptive: one value", _few_values),
)
UPDATES = (
    Attack("update x 1e6", _honest, _large),
    Attack("pull in refinement", _honest, _pull),
    Attack("covariance pulled", _honest, _covariance),
    Attack("covariance made up", _honest, _made_up_covariance),
    Attack("null counts up", _many, _counts_moved(NULL, 3.0, slice(None))),
    Attack("null counts down", _many, _counts_moved(NULL, -3.0, slice(0, FEW_FEATURES))),
    Attack("shape counts up", _many, _counts_moved(SHAPE, 2.0, slice(None))),
    Attack("shape counts down", _many, _counts_moved(SHAPE, -3.0, slice(0, FEW_FEATURES))),
    Attack("adaptive: null counts up a little", _many, _counts_moved(NULL, BELOW, slice(None))),
)
ATTACKS = {attack.name: attack for attack in (*DATA_ONLY, *UPDATES)}
