"""Traces of a solver by round: the paper's err, the error of L, and the CPU seconds of the solver alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.baselines.result import BaselineResult, Observe
from dcfpca.rpca.gradient.settings import GradientPlan
from dcfpca.rpca.gradient.stages import GradientSolver
from dcfpca.rpca.method import Consensus, FloatArray, TensorMessage
from dcfpca.rpca.simulate import collect, exchange
from dcfpca.rpca.stage import Site
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.round_plan import RoundPlan
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Problem
from dcfpca.rpca.thresholds import firm, soft


@dataclass(frozen=True, slots=True)
class Track:
    """One curve. `errors` are the paper's err after each round (or iteration), `errors_L` are ‖L−L₀‖/‖L₀‖."""

    solver: str
    errors: tuple[float, ...]
    errors_L: tuple[float, ...]  # noqa: N815 — L keeps its capital
    rank: int
    cpu_seconds: float

    def rounds_to(self, level: float) -> int | None:
        """The first round whose err is at most this."""
        return next((number for number, error in enumerate(self.errors, start=1) if error <= level), None)


@dataclass(slots=True)
class Gauge:
    """Adds up squared distances from the truth over blocks of columns, so that no second matrix is allocated."""

    problem: Problem
    scale: float = field(init=False)
    scale_L: float = field(init=False)  # noqa: N815
    errors: list[float] = field(default_factory=list)
    errors_L: list[float] = field(default_factory=list)  # noqa: N815

    def __post_init__(self) -> None:
        self.scale_L = _squared(self.problem.L)
        self.scale = self.scale_L + _squared(self.problem.S)

    def take(self, parts: Sequence[tuple[FloatArray, FloatArray]]) -> None:
        """Append the errors of L and S, which are given site by site."""
        start, off_L, off_S = 0, 0.0, 0.0
        for L, S in parts:
            own = slice(start, start + L.shape[1])
            off_L += _squared(L - self.problem.L[:, own])
            off_S += _squared(S - self.problem.S[:, own])
            start = own.stop
        self.errors.append((off_L + off_S) / self.scale)
        self.errors_L.append(float(np.sqrt(off_L / self.scale_L)))

    def track(self, solver: str, rank: int, cpu_seconds: float) -> Track:
        """The track of all errors so far."""
        return Track(solver, tuple(self.errors), tuple(self.errors_L), rank, cpu_seconds)


def federated(solver: str, method: Method, problem: Problem, look: Callable[[Consensus], None] | None = None) -> Track:
    """A method over the problem's sites in sequence, as in the paper; `look` is called with every consensus."""
    sites: list[Site] = [method.site(own) for own in problem.sites()]
    gauge, spent, consensus = Gauge(problem), 0.0, method.begin()
    while consensus.outcome is None:
        opening, began = consensus.round == 0, time.process_time()
        consensus = method.advance(consensus, exchange(method, consensus, sites))
        spent += time.process_time() - began
        if not opening:
            gauge.take(_present(method, sites, consensus, problem))
            if look is not None:
                look(consensus)
    return gauge.track(solver, consensus.progress.rank, spent)


def centralized(solver: str, run: Callable[[Observe], BaselineResult], problem: Problem) -> Track:
    """A centralized baseline; measuring its error is not timed."""
    gauge, looking = Gauge(problem), 0.0

    def look(_: int, L: FloatArray, S: FloatArray) -> None:
        nonlocal looking
        began = time.process_time()
        gauge.take([(L, S)])
        looking += time.process_time() - began

    began = time.process_time()
    result = run(look)
    return gauge.track(solver, result.rank, time.process_time() - began - looking)


def _present(
    method: Method, sites: Sequence[Site], consensus: Consensus, problem: Problem
) -> list[tuple[FloatArray, FloatArray]]:
    """L and S of every site after this round.

    These are the iterates, one pass from what the site holds: what it would form at the end costs many rounds' work,
    because V is then solved to the end. Only the last round of `subspace` shows the result itself.
    """
    parts: list[tuple[FloatArray, FloatArray]] = []
    for site, columns in zip(sites, problem.sites(), strict=True):
        if isinstance(method.solver, GradientSolver):
            parts.append(_gradient_iterate(site, consensus.broadcast, columns.array))
        elif isinstance(method.solver, SubspaceSolver) and consensus.outcome is None:
            parts.append(_subspace_iterate(method.solver, site, consensus.broadcast, columns.array))
        else:
            result = collect(site, consensus)
            parts.append((result.L, result.S.toarray()))
    return parts


def _gradient_iterate(site: Site, broadcast: TensorMessage, M: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The paper's own: U Vᵀ and soft(M − U Vᵀ, λ) with the V of the round."""
    L = broadcast.tensor @ np.asarray(site.snapshot()["fit/V"], dtype=np.float64).T
    return L, soft(M - L, GradientPlan.of(broadcast).lambda_)


def _subspace_iterate(
    solver: SubspaceSolver, site: Site, broadcast: TensorMessage, M: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """L = U D Uᵀ(M − S) with S = firm(M − the site's last L)."""
    state = {name: np.asarray(value, dtype=np.float64) for name, value in site.snapshot().items()}
    plan = RoundPlan.of(broadcast)
    S = firm(M - state["fit/U"] @ state["fit/fitted"].T, plan.threshold, solver.settings.a)
    L = (plan.U * plan.weights) @ (plan.U.T @ (M - S))
    return L, firm(M - L, plan.threshold, solver.settings.a)


def _squared(matrix: FloatArray) -> float:
    flat = matrix.ravel()
    return float(flat @ flat)
