"""A timed solve in one process.

With one thread the clock is the CPU time of the process, which other load does not inflate; with more threads it is the
wall clock.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from threadpoolctl import threadpool_limits

from dcfpca.rpca.kernels.compiled_loops import load_loops
from dcfpca.rpca.method import Consensus, WorkArray
from dcfpca.rpca.simulate import SiteResult, collect, exchange
from dcfpca.rpca.stage import Site
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.round_plan import CoefficientStart, RoundPlan
from dcfpca.rpca.subspace.site import SKETCHING_ROUNDS
from dcfpca.rpca.subspace.site_result import unexplained_text
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Problem, paper_error, relative_squared_error

LEVELS = ("1e-6", "1e-10", "1e-20")  # of ‖L−L₀‖²/‖L₀‖²
FAR_OFF = 0.05  # relative change of L above which its squared error cannot be near any level


@dataclass(slots=True)
class Clock:
    """Seconds spent, and the seconds that the matrix products alone would take at the measured peak rate."""

    now: Callable[[], float]
    opening: float = 0.0
    rounds: list[float] = field(default_factory=list)
    sites: float = 0.0
    ideal: float = 0.0
    finish: float = 0.0


@dataclass(frozen=True, slots=True)
class Solved:
    """The figures of one solve, under the names that `benchmarks.solve` prints."""

    error: float
    relative_error_L: float  # noqa: N815 — the name is a contract
    rounds: int
    rounds_to: dict[str, int | None]
    seconds_to: dict[str, float | None]
    rank: int
    seconds: float
    seconds_per_round: float
    gemm_fraction: float
    peak_bytes: int
    matrix_bytes: int
    outcome: str


def solve(method: Method, problem: Problem, threads: int = 1) -> Solved:
    """Run the method over the problem's sites in sequence; measuring the error of each round is not timed."""
    # Loaded once per process, not per solve, so they are loaded before the clock starts.
    load_loops([method.solver.width] if isinstance(method.solver, SubspaceSolver) else ())
    with threadpool_limits(threads):
        return _solve(method, problem, time.process_time if threads == 1 else time.perf_counter)


def _solve(method: Method, problem: Problem, now: Callable[[], float]) -> Solved:
    sites: list[Site] = [method.site(own) for own in problem.sites()]
    clock, errors = Clock(now), list[float]()
    consensus, peaks = method.begin(), dict[tuple[int, type], float]()
    while consensus.outcome is None:
        consensus = _timed_round(method, consensus, sites, problem, clock, peaks)
        if clock.rounds:
            errors.append(_look(sites, consensus, problem))
    began = clock.now()
    results = [collect(site, consensus) for site in sites]
    clock.finish = clock.now() - began
    L = np.concatenate([result.L for result in results], axis=1)
    S = np.concatenate([result.S.toarray() for result in results], axis=1)
    peak, matrix = peak_of_step(method, problem, consensus)
    return Solved(
        error=paper_error(L, S, problem.L, problem.S),
        relative_error_L=float(np.sqrt(relative_squared_error(L, problem.L))),
        rounds=len(clock.rounds),
        rounds_to={level: _reached(errors, float(level)) for level in LEVELS},
        seconds_to={level: _seconds(clock, _reached(errors, float(level))) for level in LEVELS},
        rank=consensus.progress.rank,
        seconds=clock.opening + sum(clock.rounds) + clock.finish,
        seconds_per_round=float(np.mean(clock.rounds)),
        gemm_fraction=clock.ideal / clock.sites if clock.sites else float("nan"),
        peak_bytes=peak,
        matrix_bytes=matrix,
        outcome=(str(consensus.outcome.value) if consensus.outcome else "") + _apart(results),
    )


def _apart(results: Sequence[SiteResult]) -> str:
    """The sentence for rows (common to all sites) or columns that remain unexplained."""
    rows, columns = ([one.certificate.get(f"{what}_apart", 0.0) for one in results] for what in ("rows", "columns"))
    return unexplained_text({"rows_apart": max(rows), "columns_apart": sum(columns)})


def _timed_round(
    method: Method,
    consensus: Consensus,
    sites: Sequence[Site],
    problem: Problem,
    clock: Clock,
    peaks: dict[tuple[int, type], float],
) -> Consensus:
    began = clock.now()
    total = exchange(method, consensus, sites)
    answered = clock.now()
    after = method.advance(consensus, total)
    took = clock.now() - began
    if consensus.round == 0:
        clock.opening = took
        return after
    clock.rounds.append(took)
    if isinstance(method.solver, SubspaceSolver):
        clock.sites += answered - began
        clock.ideal += _ideal_seconds(method.solver, consensus, problem, peaks, clock.now)
    return after


def _look(sites: Sequence[Site], consensus: Consensus, problem: Problem) -> float:
    """‖L−L₀‖²/‖L₀‖² if this round were the last. While L still moves much it is far off, and sites whose subspace has
    moved since would project their data anew, which takes minutes for a large matrix: then it is not measured."""
    if consensus.progress.change > FAR_OFF:
        return np.inf
    parts = [part.L for site in sites for part in site.finish(consensus)]
    return relative_squared_error(np.concatenate(parts, axis=1), problem.L)


def _reached(errors: Sequence[float], level: float) -> int | None:
    return next((number for number, error in enumerate(errors, start=1) if error <= level), None)


def _seconds(clock: Clock, rounds: int | None) -> float | None:
    """Seconds of the opening, the rounds so far and forming the result."""
    return None if rounds is None else clock.opening + sum(clock.rounds[:rounds]) + clock.finish


def _ideal_seconds(
    solver: SubspaceSolver,
    consensus: Consensus,
    problem: Problem,
    peaks: dict[tuple[int, type], float],
    now: Callable[[], float],
) -> float:
    """The seconds that this round's products of M-sized matrices would take at the peak rate for the same shapes."""
    plan = RoundPlan.of(consensus.broadcast)
    entering = plan.entering.size
    width = entering if plan.narrow else solver.width
    flops = 2.0 * problem.M.size * (_products(solver, plan) * entering + 2 * width)
    key = (width, np.float32 if plan.single else np.float64)
    if key not in peaks:
        peaks[key] = gemm_peak(problem.M.shape[0], max(problem.counts), *key, now)
    return flops / peaks[key]


def _products(solver: SubspaceSolver, plan: RoundPlan) -> int:
    """The number of products with the entering directions in a round, beside the two with all directions (V and Z)."""
    if plan.number == 1:
        return 0  # L is zero
    if plan.number <= SKETCHING_ROUNDS:
        return 2 if plan.start is CoefficientStart.SWEPT else 1
    return 2 * solver.settings.passes - 1


def gemm_peak(rows: int, columns: int, width: int, dtype: type, now: Callable[[], float]) -> float:
    """Flops per second of U Vᵀ on these shapes; the best of several."""
    rng = np.random.default_rng(0)
    U: WorkArray = rng.random((rows, width)).astype(dtype)
    V: WorkArray = rng.random((columns, width)).astype(dtype)
    out: WorkArray = np.empty((rows, columns), dtype)
    best = np.inf
    for _ in range(7):
        began = now()
        np.matmul(U, V.T, out=out)
        best = min(best, now() - began)
    return 2.0 * rows * columns * width / best


def peak_of_step(method: Method, problem: Problem, consensus: Consensus) -> tuple[int, int]:
    """Peak bytes of the largest site, its matrix and all that its local step holds; and those of the matrix alone."""
    own = max(problem.sites(), key=lambda site: site.shape[1])
    matrix = 8 * own.shape[0] * own.shape[1]
    tracemalloc.start()
    try:
        method.site(own).answer(consensus)
        return matrix + tracemalloc.get_traced_memory()[1], matrix
    finally:
        tracemalloc.stop()
