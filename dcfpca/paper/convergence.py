"""The paper's first figure: err by round for DCF-PCA, and by iteration for centralized solvers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dcfpca.paper.error_traces import Track, centralized, federated
from dcfpca.paper.published import ErrorFloor, Tuning, central_tuning, published_floors, tuning_of
from dcfpca.rpca.baselines import alm, apgm
from dcfpca.rpca.column_blocks import equal_counts
from dcfpca.rpca.gradient.method import GradientMethod, GradientSettings
from dcfpca.rpca.subspace.method import SubspaceMethod
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
    rows, rank, M = problem.M.shape[0], problem.rank, problem.M
    rounds = plan.rounds if rows < plan.long_from else plan.long_rounds
    say("gradient")
    yield federated("gradient", GradientMethod(rows, rank, rounds, settings=settings_of(tuning)), problem)
    say("subspace")
    yield federated("subspace", SubspaceMethod(rows, rank, rounds, TOLERANCE), problem)
    bound = SubspaceMethod(rows, 2 * rank, rounds, TOLERANCE, fixed_rank=False)
    yield federated("subspace, bound 2r", bound, problem)
    say("CF-PCA")
    alone = Problem(M, problem.L, problem.S, rank, (M.shape[1],))
    central = settings_of(central_tuning(M.shape[1], rank))
    yield federated("CF-PCA", GradientMethod(rows, rank, plan.central_rounds, settings=central), alone)
    say("APGM")
    yield centralized("APGM", lambda look: apgm(M, iterations=plan.apgm_iterations, observe=look), problem)
    say("ALM")
    yield centralized("ALM", lambda look: alm(M, iterations=plan.alm_iterations, observe=look), problem)


def settings_of(tuning: Tuning) -> GradientSettings:
    """Algorithm 1 with the authors' values, ρ = 1/√min(m, n)."""
    return GradientSettings(
        local_iterations=tuning.local_iterations, learning_rate=tuning.learning_rate, lambda_=tuning.lambda_
    )
