"""The paper's two theorems as experiments.

Theorem 1 bounds the mean squared gradient of g(U) along a run with η < 1/L; its constants are measured on the run
itself. Theorem 2 says that nothing but U = 0 is stationary where ρ² > λ²mn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from dcfpca.errors import BadInput
from dcfpca.rpca.gradient.objective import LeftFactor, Penalties, check_penalties, clipped_residual, huber_objective
from dcfpca.rpca.gradient.settings import GradientSettings
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.method import Consensus, FloatArray
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.stage import Site
from dcfpca.rpca.synthetic import Problem, paper_problem, relative_error
from dcfpca.rpca.thresholds import soft

EXACT = 1e-9  # relative residual to which V is solved wherever g or its gradient is taken


@dataclass(frozen=True, slots=True)
class Plan:
    """One problem for both theorems. `fractions` are ρ/(λ√(mn)): values above 1 violate the condition of Theorem 2."""

    size: int = 100
    sites: int = 5
    local_iterations: int = 5
    rounds: int = 30
    learning_rates: tuple[float, ...] = (0.05,)  # in addition to one that Theorem 1 allows
    lambda_: float = 0.1
    fractions: tuple[float, ...] = (0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.6, 0.9, 1.1, 2.0)


FULL = Plan()
QUICK = Plan(size=60, sites=3, rounds=15, fractions=(0.03, 0.1, 0.3, 0.9, 1.1))


@dataclass(frozen=True, slots=True)
class Slope:
    """g and its gradient at one U, and what Assumption 1 bounds there."""

    value: float
    gradient: float  # ‖∇g‖
    site_gradient: float  # the largest ‖∇g_i‖
    C_U: float
    C_V: float
    C_S: float


@dataclass(frozen=True, slots=True)
class BoundCheck:
    """A run against Theorem 1. `means` and `bounds` are those of the first t rounds."""

    kind: str
    learning_rate: float
    smoothness: float  # L of Lemma 3, with the constants of this run
    allowed: bool  # η < 1/L
    means: tuple[float, ...]
    bounds: tuple[float, ...]
    largest_site_gradient: float
    printed_site_bound: float  # Lemma 4 as printed
    derived_site_bound: float  # the same derivation with ρ corrected


@dataclass(frozen=True, slots=True)
class Line:
    """The minimum for this ρ, by L-BFGS on g with V solved exactly. `zero_from` is ‖clip(M, ±λ)‖₂."""

    kind: str
    fraction: float
    rho: float
    zero_from: float
    size_L: float  # noqa: N815 — ‖L‖/‖L₀‖
    relative_error_L: float  # noqa: N815
    refused: bool  # whether the software refuses these penalties


def measure(plan: Plan, say: Callable[[str], None]) -> Iterator[BoundCheck | Line]:
    """First the runs of Theorem 1, then the penalties of Theorem 2."""
    problem = paper_problem(plan.size, plan.size // 20, 0.05, plan.sites, 0)
    say("Theorem 1: a step that it allows")
    slow = _run(plan, problem, 1e-12)
    yield bound_of(plan, problem, 0.5 / _smoothness(plan, problem, slow))
    for rate in plan.learning_rates:
        say(f"Theorem 1: η = {rate:g}")
        yield bound_of(plan, problem, rate)
    for fraction in plan.fractions:
        say(f"Theorem 2: ρ = {fraction:g} λ√(mn)")
        yield line_of(plan, problem, fraction)


def bound_of(plan: Plan, problem: Problem, learning_rate: float) -> BoundCheck:
    """Algorithm 1 with this constant step and exact local solves, against the bound."""
    slopes = _run(plan, problem, learning_rate)
    penalties, n, m = _penalties(plan), problem.M.shape[1], problem.M.shape[0]
    L, C_U = _smoothness(plan, problem, slopes), max(slope.C_U for slope in slopes)
    K, lowest = plan.local_iterations, min(slope.value for slope in slopes)
    drift = 4 * (learning_rate * K * C_U * L) ** 2 * (m * penalties.rho**2 + m**2 * n * penalties.lambda_**2)
    # g* is at most the lowest g seen, so the bound taken here is the stricter one.
    descent = 2 * (slopes[0].value - lowest) / (learning_rate * K)
    counts = np.arange(1, len(slopes))
    squares = np.array([slope.gradient**2 for slope in slopes[:-1]])
    share, own = 1 / plan.sites, n / plan.sites
    printed = C_U * np.sqrt(m * (share * penalties.rho) ** 2 + m**2 * own * penalties.lambda_**2)
    derived = C_U * (share * penalties.rho + m * own * penalties.lambda_**2 / penalties.rho)
    return BoundCheck(
        "theorem 1",
        learning_rate,
        L,
        learning_rate < 1 / L,
        tuple((np.cumsum(squares) / counts).tolist()),
        tuple((descent / counts + drift).tolist()),
        max(slope.site_gradient for slope in slopes),
        float(printed),
        float(derived),
    )


def line_of(plan: Plan, problem: Problem, fraction: float) -> Line:
    """Minimize g from a random U with ρ = fraction · λ√(mn)."""
    M, rank = problem.M, problem.rank
    rho = fraction * plan.lambda_ * float(np.sqrt(M.size))
    penalties = Penalties(plan.lambda_, rho)
    start = np.random.default_rng(0).standard_normal((M.shape[0], rank))

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        U = flat.reshape(start.shape)
        value, gradient, _ = value_and_gradient(M, U, penalties, 1.0)
        return value, gradient.ravel()

    U = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 300}).x.reshape(start.shape)
    V, _ = LeftFactor.of(U, penalties).minimize(M, np.zeros((M.shape[1], rank)), EXACT)
    L = U @ V.T
    zero_from = float(np.linalg.norm(np.clip(M, -plan.lambda_, plan.lambda_), 2))
    size = float(np.linalg.norm(L) / np.linalg.norm(problem.L))
    return Line("theorem 2", fraction, rho, zero_from, size, relative_error(L, problem.L), _refused(penalties, M.shape))


def value_and_gradient(
    M: FloatArray, U: FloatArray, penalties: Penalties, share: float
) -> tuple[float, FloatArray, FloatArray]:
    """g_i(U), its gradient by Danskin's theorem, and the V at which it is taken."""
    V, _ = LeftFactor.of(U, penalties).minimize(M, np.zeros((M.shape[1], U.shape[1])), EXACT)
    pull = clipped_residual(M, U, V, penalties.lambda_) @ V
    weight = share * penalties.rho
    return huber_objective(M, U, V, penalties) + 0.5 * weight * float(np.sum(U * U)), weight * U - pull, V


def _run(plan: Plan, problem: Problem, learning_rate: float) -> list[Slope]:
    """g and its gradient before the first round and after every round."""
    penalties, slopes = _penalties(plan), list[Slope]()
    settings = GradientSettings(
        plan.local_iterations, learning_rate, "constant", plan.lambda_, penalties.rho, 0, inner_tolerance=EXACT
    )

    def look(now: Consensus, _: Sequence[Site]) -> None:
        slopes.append(_slope(problem, now.broadcast.tensor, penalties))

    simulate(
        gradient_method(GradientSolver(problem.M.shape[0], problem.rank, plan.rounds, settings=settings)),
        problem.sites(),
        look,
    )
    return slopes


def _slope(problem: Problem, U: FloatArray, penalties: Penalties) -> Slope:
    parts = [
        (own.array, *value_and_gradient(own.array, U, penalties, own.shape[1] / problem.M.shape[1]))
        for own in problem.sites()
    ]
    outliers = [soft(M - U @ V.T, penalties.lambda_) for M, _, _, V in parts]
    return Slope(
        value=sum(value for _, value, _, _ in parts),
        gradient=float(np.linalg.norm(sum(gradient for _, _, gradient, _ in parts))),
        site_gradient=max(float(np.linalg.norm(gradient)) for _, _, gradient, _ in parts),
        C_U=float(np.linalg.norm(U)),
        C_V=max(float(np.linalg.norm(V)) for _, _, _, V in parts),
        C_S=max(float(np.linalg.norm(S)) for S in outliers),
    )


def _smoothness(plan: Plan, problem: Problem, slopes: Sequence[Slope]) -> float:
    """L of Lemma 3 with the largest norms met on this run."""
    C_U, C_V = max(slope.C_U for slope in slopes), max(slope.C_V for slope in slopes)
    C_S = max(slope.C_S for slope in slopes)
    C_M = max(float(np.linalg.norm(own.array)) for own in problem.sites())
    return problem.rank + C_V**2 + (4 * C_S + 12 * C_V + 4 * C_M) / _penalties(plan).rho * C_V * C_U


def _refused(penalties: Penalties, shape: tuple[int, ...]) -> bool:
    try:
        check_penalties(penalties, *shape)
    except BadInput:
        return True
    return False


def _penalties(plan: Plan) -> Penalties:
    return Penalties(plan.lambda_, 1.0 / float(np.sqrt(plan.size)))
