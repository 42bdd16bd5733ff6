"""The demo's synthetic data, and the errors of the sites' results against the truth."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from dcfpca.errors import BadInput
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.synthetic import Problem, Recipe, generate, paper_error, relative_error

FEWEST_SITES = 2
_FEWEST_COLUMNS = 2


@dataclass(frozen=True, slots=True)
class SiteScore:
    """The errors of one site's result files."""

    name: str
    columns: int
    low_rank_error: float
    outliers: int
    found: int
    invented: int


@dataclass(frozen=True, slots=True)
class Score:
    """The errors over all sites."""

    error: float
    low_rank_error: float
    sites: tuple[SiteScore, ...]


def site_names(count: int) -> list[str]:
    """hospital-a, hospital-b, …; numbered if there are more than 26."""
    if count <= len(string.ascii_lowercase):
        return [f"hospital-{letter}" for letter in string.ascii_lowercase[:count]]
    return [f"hospital-{number:03d}" for number in range(1, count + 1)]


def unequal_counts(columns: int, sites: int) -> tuple[int, ...]:
    """Column counts that differ: the last site has about three times as many as the first."""
    if sites < FEWEST_SITES or columns < sites * _FEWEST_COLUMNS:
        least = max(sites, FEWEST_SITES) * _FEWEST_COLUMNS
        hint = f"give at least {FEWEST_SITES} participants and {least} columns"
        raise BadInput(f"{columns} columns cannot be divided among {sites} participants", hint)
    weights = np.linspace(1.0, 3.0, sites)
    ends = np.round(np.cumsum(weights) / weights.sum() * (columns - sites * _FEWEST_COLUMNS)).astype(int)
    return tuple(int(count) + _FEWEST_COLUMNS for count in np.diff(ends, prepend=0))


def draw(rows: int, columns: int, rank: int, sites: int, seed: int) -> Problem:
    """A low-rank matrix with 5 % gross errors, divided unequally among the sites."""
    return generate(Recipe(rows, columns, rank, counts=unequal_counts(columns, sites)), seed)


def score(problem: Problem, results: Mapping[str, Path]) -> Score:
    """Compare the result files of all sites, in order, with the truth."""
    found = [_load(directory) for directory in results.values()]
    L = np.concatenate([low_rank for low_rank, _ in found], axis=1)
    S = sparse.csc_array(sparse.hstack([outliers for _, outliers in found], format="csc"))
    ends = np.cumsum(problem.counts)
    sites = [
        _site_score(name, part, problem.L[:, end - count : end], problem.S[:, end - count : end])
        for name, part, count, end in zip(results, found, problem.counts, ends, strict=True)
    ]
    return Score(paper_error(L, S, problem.L, problem.S), relative_error(L, problem.L), tuple(sites))


def _load(directory: Path) -> tuple[FloatArray, sparse.csc_array]:
    return np.load(directory / "L.npy"), sparse.csc_array(sparse.load_npz(directory / "S.npz"))


def _site_score(name: str, result: tuple[FloatArray, sparse.csc_array], L: FloatArray, S: FloatArray) -> SiteScore:
    """An outlier counts as found where |S| exceeds half of the smallest true outlier."""
    low_rank, sparse_part = result
    flagged = np.abs(sparse_part.toarray()) > 0.5 * np.abs(S[S != 0]).min(initial=np.inf)
    true = S != 0
    return SiteScore(
        name=name,
        columns=L.shape[1],
        low_rank_error=relative_error(low_rank, L),
        outliers=int(true.sum()),
        found=int((flagged & true).sum()),
        invented=int((flagged & ~true).sum()),
    )
