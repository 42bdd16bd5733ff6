"""Singular values with only an upper bound p = 2r of the rank given: the paper's figure at n = 200, and its table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from dcfpca.paper.convergence import TOLERANCE, settings_of
from dcfpca.paper.error_traces import federated
from dcfpca.paper.published import SINGULAR_VALUE_ERRORS, tuning_of
from dcfpca.rpca.gradient.method import GradientMethod, GradientSettings
from dcfpca.rpca.method import Consensus, FloatArray, Method
from dcfpca.rpca.metrics import singular_value_error
from dcfpca.rpca.subspace.method import SubspaceMethod
from dcfpca.rpca.synthetic import Problem, paper_problem

SITES = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes and rounds. From size `long_from` on, rounds are slow: fewer of them, and not with the paper's ρ."""

    sizes: tuple[int, ...]
    rounds: int = 60
    long_rounds: int = 30
    long_from: int = 3000


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
    lambda_: float | None = None
    rho: float | None = None


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
    methods: dict[str, Method] = {
        "subspace": SubspaceMethod(size, width, rounds, TOLERANCE, fixed_rank=False),
        "gradient, measured ρ": GradientMethod(size, width, rounds, settings=GradientSettings()),
    }
    if not long:
        paper = replace(settings_of(tuning_of(size)), learning_rate=None)
        methods["gradient, the paper's ρ"] = GradientMethod(size, width, rounds, settings=paper)
    return methods


def _spectrum(solver: str, method: Method, problem: Problem, truth: FloatArray) -> Spectrum:
    values, penalties = list[FloatArray](), list[FloatArray]()

    def look(now: Consensus) -> None:
        values.append(method.model(now)["singular_values"])
        penalties.append(now.broadcast.scalars[1:3])

    track = federated(solver, method, problem, look)
    errors = tuple(singular_value_error(found, truth, problem.rank) for found in values)
    lambda_, rho = penalties[-1] if isinstance(method, GradientMethod) else (None, None)
    last = tuple(values[-1].tolist())
    return Spectrum(solver, last, errors[-1], errors, track.errors_L[-1], len(errors), lambda_, rho)
