"""The paper's first figure: err by round for DCF-PCA, and by iteration for centralized solvers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Self

from benchmarks.baselines import alm, apgm
from benchmarks.paper.error_traces import Track, centralized, federated
from benchmarks.paper.published import ALM_GROWTH, ErrorFloor, Tuning, central_tuning, published_floors, tuning_of
from dcfpca.rpca.column_blocks import equal_counts
from dcfpca.rpca.gradient.settings import GradientSettings
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Outliers, Problem, Recipe, generate

TOLERANCE = 1e-11


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes with their kind of outliers, and the rounds of each solver, fewer where a round takes long."""

    problems: tuple[tuple[int, Outliers], ...]
    rounds: int = 60
    long_rounds: int = 45
    long_from: int = 3000
    central_rounds: int = 100
    apgm_iterations: int = 150
    alm_iterations: int = 25
    solvers: tuple[str, ...] = ()
    """Only these; none: all."""

    def part(self, size: int | None, solver: str | None) -> Self:
        """Only this size and this solver, where given."""
        problems = tuple(one for one in self.problems if size in (None, one[0]))
        return replace(self, problems=problems, solvers=(solver,) if solver else ())


FULL = Plan(
    ((500, Outliers.IMPULSE), (500, Outliers.UNIFORM), (1000, Outliers.IMPULSE), (3000, Outliers.IMPULSE)),
)
QUICK = Plan(((200, Outliers.IMPULSE), (500, Outliers.IMPULSE)), 45, central_rounds=90, apgm_iterations=100)


@dataclass(frozen=True, slots=True)
class Case:
    """One panel: all solvers on the same matrix, and the paper's floors."""

    size: int
    rank: int
    sparsity: float
    outliers: str
    tuning: Tuning
    tracks: tuple[Track, ...]
    published: tuple[ErrorFloor, ...]


def measure(plan: Plan, say: Callable[[str], None]) -> Iterator[Case]:
    """One case per size; r = .05 n and s = .05 as in the paper."""
    for size, outliers in plan.problems:
        tuning = tuning_of(size)
        recipe = Recipe(size, size, size // 20, 0.05, outliers, counts=equal_counts(size, tuning.sites))
        problem = generate(recipe, 0)
        tracks = tuple(_tracks(plan, tuning, problem, lambda text, n=size: say(f"n = {n}: {text}")))  # type: ignore[misc]
        yield Case(size, size // 20, 0.05, outliers.value, tuning, tracks, published_floors(size))


def _tracks(plan: Plan, tuning: Tuning, problem: Problem, say: Callable[[str], None]) -> Iterator[Track]:
    for solver, run in _solvers(plan, tuning, problem).items():
        if not plan.solvers or solver in plan.solvers:
            say(solver)
            yield run(solver)


def _solvers(plan: Plan, tuning: Tuning, problem: Problem) -> dict[str, Callable[[str], Track]]:
    rows, rank, M = problem.M.shape[0], problem.rank, problem.M
    rounds = plan.rounds if rows < plan.long_from else plan.long_rounds
    gradient = gradient_method(GradientSolver(rows, rank, rounds, settings=settings_of(tuning)))
    given, bound = (
        subspace_method(SubspaceSolver(rows, k * rank, rounds, TOLERANCE, fixed_rank=k == 1)) for k in (1, 2)
    )
    alone = Problem(M, problem.L, problem.S, rank, (M.shape[1],))
    central = gradient_method(
        GradientSolver(rows, rank, plan.central_rounds, settings=settings_of(central_tuning(M.shape[1])))
    )
    return {
        "gradient": lambda name: federated(name, gradient, problem),
        "subspace": lambda name: federated(name, given, problem),
        "subspace, bound 2r": lambda name: federated(name, bound, problem),
        "CF-PCA": lambda name: federated(name, central, alone),
        "APGM": lambda name: centralized(
            name, lambda look: apgm(M, iterations=plan.apgm_iterations, observe=look), problem
        ),
        "ALM": lambda name: centralized(
            name, lambda look: alm(M, growth=ALM_GROWTH, iterations=plan.alm_iterations, observe=look), problem
        ),
    }


def settings_of(tuning: Tuning) -> GradientSettings:
    """Algorithm 1 with the authors' values, ρ = 1/√min(m, n)."""
    return GradientSettings(
        local_iterations=tuning.local_iterations, learning_rate=tuning.learning_rate, lambda_=tuning.lambda_
    )
