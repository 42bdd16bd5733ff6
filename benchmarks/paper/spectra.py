"""Singular values with only an upper bound p = 2r of the rank given: the paper's figure at n = 200, and its table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from benchmarks.baselines.spectrum import largest_value
from benchmarks.paper.convergence import TOLERANCE, settings_of
from benchmarks.paper.error_traces import federated
from benchmarks.paper.published import SINGULAR_VALUE_ERRORS, bound_tuning
from dcfpca.rpca.gradient.settings import GradientSettings
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.method import Consensus, FloatArray
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Problem, paper_problem, singular_value_error

SITES = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes and rounds; fewer from size `long_from` on, and their own number with the paper's ρ, where more do harm."""

    sizes: tuple[int, ...]
    rounds: int = 60
    long_rounds: int = 30
    long_rounds_of_paper: int = 32
    long_from: int = 3000
    solvers: tuple[str, ...] = ()
    """Only these; none: all."""

    def part(self, size: int | None, solver: str | None) -> Self:
        """Only this size and this solver, where given."""
        sizes = tuple(one for one in self.sizes if size in (None, one))
        return replace(self, sizes=sizes, solvers=(solver,) if solver else ())


SINGULAR_FULL = SINGULAR_QUICK = Plan((200,), 100)
RANK_FULL = Plan((200, 500, 1000, 5000))
RANK_QUICK = Plan((200, 500), 40)


@dataclass(frozen=True, slots=True)
class Spectrum:
    """The singular values found by one method, and the paper's measure of their error, at the end and by round."""

    solver: str
    values: tuple[float, ...]
    error: float
    errors: tuple[float, ...]
    relative_error_L: float  # noqa: N815 — L keeps its capital
    rounds: int
    cpu_seconds: float
    lambda_: float | None = None
    rho: float | None = None
    pull: float | None = None
    """‖clip(S₀, ±λ)‖₂/ρ: where L = L₀, surplus directions rest at zero only if it is at most 1."""


@dataclass(frozen=True, slots=True)
class Case:
    """One size: the truth, and what each method finds below the bound."""

    size: int
    rank: int
    bound: int
    truth: tuple[float, ...]
    published: float | None
    spectra: tuple[Spectrum, ...]


def measure(plan: Plan, say: Callable[[str], None]) -> Iterator[Case]:
    """One case per size; r = .05 n, s = .05, p = 2r."""
    for size in plan.sizes:
        rank = size // 20
        problem = paper_problem(size, rank, 0.05, SITES, 0)
        truth = true_values(problem)
        spectra = []
        for solver, method in _methods(plan, size, 2 * rank).items():
            if plan.solvers and solver not in plan.solvers:
                continue
            say(f"n = {size}: {solver}")
            spectra.append(_spectrum(solver, method, problem, truth))
        published = SINGULAR_VALUE_ERRORS.get(size)
        yield Case(size, rank, 2 * rank, tuple(truth.tolist()), published, tuple(spectra))


def true_values(problem: Problem) -> FloatArray:
    """The r singular values of L₀, from r of its columns, which span it."""
    basis = np.linalg.qr(problem.L[:, : problem.rank])[0]
    return np.asarray(np.linalg.svd(basis.T @ problem.L, compute_uv=False), dtype=np.float64)


def _methods(plan: Plan, size: int, width: int) -> dict[str, Method]:
    """`gradient` with λ and ρ measured in the opening exchange, and with the paper's ρ = 1/√n."""
    long = size >= plan.long_from
    rounds = plan.long_rounds if long else plan.rounds
    paper = settings_of(bound_tuning(size))
    return {
        "subspace": subspace_method(SubspaceSolver(size, width, rounds, TOLERANCE, fixed_rank=False)),
        "gradient, measured ρ": gradient_method(GradientSolver(size, width, rounds, settings=GradientSettings())),
        "gradient, the paper's ρ": gradient_method(
            GradientSolver(size, width, plan.long_rounds_of_paper if long else plan.rounds, settings=paper)
        ),
    }


def _spectrum(solver: str, method: Method, problem: Problem, truth: FloatArray) -> Spectrum:
    values, penalties = list[FloatArray](), list[FloatArray]()

    def look(now: Consensus) -> None:
        values.append(method.model(now)["singular_values"])
        penalties.append(now.broadcast.scalars[2:4])

    track = federated(solver, method, problem, look)
    errors = tuple(singular_value_error(found, truth, problem.rank) for found in values)
    last = tuple(values[-1].tolist())
    found = Spectrum(solver, last, errors[-1], errors, track.errors_L[-1], len(errors), track.cpu_seconds)
    if not isinstance(method.solver, GradientSolver):
        return found
    lambda_, rho = (float(value) for value in penalties[-1])
    return replace(found, lambda_=lambda_, rho=rho, pull=_pull(problem, lambda_) / rho)


def _pull(problem: Problem, lambda_: float) -> float:
    """The gradient of the loss in L at the truth, ‖clip(S₀, ±λ)‖₂, against which ρ must hold surplus directions."""
    return largest_value(np.clip(problem.S, -lambda_, lambda_), np.random.default_rng(0))
