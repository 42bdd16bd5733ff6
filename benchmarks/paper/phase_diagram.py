"""The phase diagram: which combinations of rank and sparsity are recovered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.paper.convergence import TOLERANCE, settings_of
from benchmarks.paper.error_traces import Track, federated
from benchmarks.paper.published import PHASE_TUNING, RANK_SHARES, SPARSITIES, phase, scaled
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import paper_problem


@dataclass(frozen=True, slots=True)
class Plan:
    """The grid, and how many rounds each method may take."""

    size: int = 500
    rank_shares: tuple[float, ...] = RANK_SHARES
    sparsities: tuple[float, ...] = SPARSITIES
    rounds: int = 49  # "less than 50"
    subspace_rounds: int = 150


FULL = Plan()
QUICK = Plan(200, RANK_SHARES, (0.05, 0.15, 0.30))


@dataclass(frozen=True, slots=True)
class Found:
    """A method's result in one cell."""

    error: float
    relative_error_L: float  # noqa: N815 — L keeps its capital
    rounds: int
    rank: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of r/n and s."""

    size: int
    rank: int
    rank_share: float
    sparsity: float
    published: float | None
    gradient: Found
    subspace: Found
    subspace_bound: Found


def measure(plan: Plan, say: Callable[[str], None]) -> Iterator[Cell]:
    """Cell by cell, easiest first."""
    for share in plan.rank_shares:
        for sparsity in plan.sparsities:
            say(f"r = {share:g} n, s = {sparsity:g}")
            yield _cell(plan, share, sparsity)


def _cell(plan: Plan, share: float, sparsity: float) -> Cell:
    size, rank = plan.size, round(plan.size * share)
    problem = paper_problem(size, rank, sparsity, PHASE_TUNING.sites, 0)
    gradient = gradient_method(
        GradientSolver(size, rank, plan.rounds, settings=settings_of(scaled(PHASE_TUNING, size)))
    )
    given = subspace_method(SubspaceSolver(size, rank, plan.subspace_rounds, TOLERANCE))
    bound = subspace_method(SubspaceSolver(size, 2 * rank, plan.subspace_rounds, TOLERANCE, fixed_rank=False))
    found = (_found(federated("", method, problem)) for method in (gradient, given, bound))
    return Cell(size, rank, share, sparsity, phase(share, sparsity) if size == FULL.size else None, *found)


def _found(track: Track) -> Found:
    return Found(track.errors[-1], track.errors_L[-1], len(track.errors), track.rank)
