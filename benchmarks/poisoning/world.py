"""Federations of sites with 40 features of rank 4 and 150 columns each, and what is wrong with their entries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray

FEATURES, RANK, COLUMNS, NOISE = 40, 4, 150, 0.4
SPOILED, CARRYING = 0.02, 0.02  # entries that are wrong each by itself, and columns that have the pattern
PATTERN_FEATURES = 8
KINDS = ("alike", "offsets", "a third of the factors", "two own factors")
MOST_OFFSET = 0.6  # deviations


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """An honest site's matrix, which entries are wrong, and which of those belong to the pattern."""

    M: FloatArray
    wrong: NDArray[np.bool_]
    pattern: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """What the sites of a federation have in common, which an attacker knows: centre, factors, pattern."""

    centre: FloatArray
    factors: FloatArray  # m × rank, of deviation 1 over a feature's columns in all
    pattern: FloatArray  # m, zero but for a few features

    @staticmethod
    def drawn(rng: np.random.Generator) -> World:
        """A world."""
        pattern = np.zeros(FEATURES)
        pattern[rng.choice(FEATURES, PATTERN_FEATURES, replace=False)] = rng.choice([-1.0, 1.0], PATTERN_FEATURES)
        factors = rng.normal(size=(FEATURES, RANK)) / np.sqrt(RANK)
        return World(rng.normal(scale=3.0, size=FEATURES), factors, pattern)

    def clean(self, rng: np.random.Generator, columns: int = COLUMNS) -> FloatArray:
        """Columns in which nothing is wrong."""
        L = self.factors @ rng.normal(size=(self.factors.shape[1], columns))
        return np.asarray(self.centre[:, None] + L + NOISE * rng.normal(size=L.shape))

    def site(self, rng: np.random.Generator, kind: str = "alike") -> Site:
        """An honest site; its errors are 4 to 12 deviations, the pattern 3 to 6."""
        M = self._differing(rng, kind).clean(rng)
        spread = np.sqrt(1.0 + NOISE**2)
        wrong = rng.random(M.shape) < SPOILED
        M = M + wrong * rng.uniform(4.0, 12.0, M.shape) * rng.choice([-1.0, 1.0], M.shape) * spread
        carrying = rng.random(M.shape[1]) < CARRYING
        amount = rng.uniform(3.0, 6.0, M.shape[1]) * spread * carrying
        pattern = np.outer(self.pattern != 0.0, carrying)
        return Site(M + np.outer(self.pattern, amount), wrong | pattern, pattern)

    def _differing(self, rng: np.random.Generator, kind: str) -> World:
        """The world as one site of a federation of this kind has it."""
        if kind == "offsets":
            off = rng.normal(scale=rng.uniform(0.0, MOST_OFFSET), size=FEATURES)
            return World(self.centre + off, self.factors, self.pattern)
        if kind == "a third of the factors":
            kept = rng.choice(RANK, max(1, RANK // 3 + 1), replace=False)
            return World(self.centre, self.factors[:, kept], self.pattern)
        if kind == "two own factors":
            own = rng.normal(size=(FEATURES, 2)) / np.sqrt(RANK)
            return World(self.centre, np.column_stack([self.factors, own]), self.pattern)
        return self
