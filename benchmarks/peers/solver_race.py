"""Time to a given error of several solvers on one problem of known truth, in turn, on one thread.

Each solver runs once to find the iteration that reaches a level of ‖L−L₀‖²/‖L₀‖², then is timed over exactly that many
iterations, including forming L and S. Measuring the error is timed only in slow solvers, where it is negligible.
A peer with a setting that trades speed against safety is tried with several values, and the fastest that reaches the
level counts. Ours runs with its defaults.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import baselines
from benchmarks.baselines.result import Observe
from benchmarks.solver.timed_solve import solve
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Problem, relative_squared_error

LEVELS = {"1e-6": 1e-6, "1e-10": 1e-10}
OUR_ROUNDS, THEIR_ITERATIONS = 9, 45
Run = Callable[[int, Observe | None], object]


@dataclass(frozen=True, slots=True)
class PeerSolver:
    """A peer solver with one value of its setting; `told` names the inputs it gets besides the matrix."""

    name: str
    told: str
    setting: str
    run: Run
    slow: bool = False  # timed once, in the run that measures the error


@dataclass(frozen=True, slots=True)
class TimeToLevel:
    """CPU seconds to a level (None if not reached), the iterations or rounds taken, and the fastest setting.

    Of a package: its version, the squared relative error of L where it stopped by its own rule, and in `note` why a
    level was not reached.
    """

    solver: str
    told: str
    level: str
    cpu_seconds: float | None
    iterations: int | None
    setting: str = ""
    version: str = ""
    squared_error: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class FirstReached:
    """The first iteration that reaches a level, and the CPU seconds until then, including measuring the error."""

    iteration: int
    cpu_seconds: float


def race(problem: Problem, peers: Sequence[PeerSolver], repeats: int = 3) -> Iterator[TimeToLevel]:
    """Every solver to every level, the best of `repeats`."""
    yield from ours(problem, repeats)
    yield from theirs(problem, peers, repeats)


def ours(problem: Problem, repeats: int) -> Iterator[TimeToLevel]:
    """`subspace`, given the rank, and given twice the rank as a bound."""
    with threadpool_limits(1):
        for told, fixed_rank, width in (("rank", True, problem.rank), ("bound 2r", False, 2 * problem.rank)):
            solver = SubspaceSolver(problem.M.shape[0], width, OUR_ROUNDS, 1e-11, fixed_rank=fixed_rank)
            reached = solve(subspace_method(solver), problem).rounds_to
            for level in LEVELS:
                rounds = reached[level]
                taken = None if rounds is None else _our_seconds(replace(solver, rounds=rounds), problem, repeats)
                yield TimeToLevel("subspace", told, level, taken, rounds)


def _our_seconds(solver: SubspaceSolver, problem: Problem, repeats: int) -> float:
    method, sites = subspace_method(solver), problem.sites()
    return min(_cpu_seconds(lambda: simulate(method, sites)) for _ in range(repeats))


def theirs(problem: Problem, peers: Sequence[PeerSolver], repeats: int) -> Iterator[TimeToLevel]:
    """Every peer, with its fastest setting."""
    with threadpool_limits(1):
        for name in dict.fromkeys(peer.name for peer in peers):
            yield from _best([peer for peer in peers if peer.name == name], problem, repeats)


def baseline_peers(problem: Problem) -> list[PeerSolver]:
    """The baselines of this library, given all the parameters they need."""
    M, rank, count = problem.M, problem.rank, int(np.count_nonzero(problem.S))
    share = count / M.size

    def projections(decay: float) -> Run:
        return lambda number, look: baselines.accelerated_alternating_projections(
            M, rank, decay=decay, tolerance=0.0, iterations=number, observe=look
        )

    def lagrangian(growth: float) -> Run:
        return lambda number, look: baselines.alm(M, growth=growth, tolerance=0.0, iterations=number, observe=look)

    def descent(step: float) -> Run:
        return lambda number, look: baselines.scaled_gradient_descent(
            M, rank, sparsity=share, step=step, tolerance=0.0, iterations=number, observe=look
        )

    def cur(sampling: float, decay: float) -> Run:
        return lambda number, look: baselines.ircur(
            M, rank, sampling=sampling, decay=decay, tolerance=0.0, iterations=number, observe=look
        )

    def go(number: int, look: Observe | None) -> object:
        return baselines.godec(M, rank, count, tolerance=0.0, iterations=number, observe=look)

    both = "rank, share of outliers"
    found = [
        PeerSolver("accelerated alternating projections", "rank", f"decay {decay}", projections(decay))
        for decay in (0.4, 0.5)
    ]
    found += [
        PeerSolver("ALM, partial SVD", "nothing", f"growth {growth}", lagrangian(growth)) for growth in (2.0, 3.0)
    ]
    found += [PeerSolver("ScaledGD", both, f"step {step}", descent(step)) for step in (0.5, 0.9)]
    found += [PeerSolver("GoDec", "rank, number of outliers", "", go)]
    found += [
        PeerSolver("IRCUR", "rank", f"sampling {sampling}, decay {decay}", cur(sampling, decay))
        for sampling, decay in ((0.6, 0.65), (1.0, 0.65), (2.0, 0.8))
        # Skip settings that would sample most of the matrix.
        if sampling == 0.6 or sampling * rank * np.log(M.shape[0]) < M.shape[0] / 2
    ]
    return found


def whole_decompositions(problem: Problem) -> PeerSolver:
    """ALM with a full SVD in every iteration, which takes minutes where the others take seconds."""

    def run(number: int, look: Observe | None) -> object:
        return baselines.alm(problem.M, partial=False, growth=2.0, tolerance=0.0, iterations=number, observe=look)

    return PeerSolver("ALM, full SVD", "nothing", "growth 2.0", run, slow=True)


def _best(peers: Sequence[PeerSolver], problem: Problem, repeats: int) -> Iterator[TimeToLevel]:
    """For each level, the fastest of one peer's settings."""
    reached = {peer.setting: first_iterations(peer, problem) for peer in peers}
    for level in LEVELS:
        timed = [
            TimeToLevel(peer.name, peer.told, level, _seconds(peer, first, repeats), first.iteration, peer.setting)
            for peer in peers
            if (first := reached[peer.setting].get(level)) is not None
        ]
        lost = TimeToLevel(peers[0].name, peers[0].told, level, None, None)
        yield min(timed, key=lambda finish: finish.cpu_seconds or 0.0, default=lost)


def first_iterations(peer: PeerSolver, problem: Problem) -> dict[str, FirstReached]:
    """The first iteration at each level that the peer reaches."""
    reached: dict[str, FirstReached] = {}
    began = time.process_time()

    def look(number: int, L: FloatArray, _: FloatArray) -> None:
        error = relative_squared_error(L, problem.L)
        for level, value in LEVELS.items():
            if error <= value:
                reached.setdefault(level, FirstReached(number, time.process_time() - began))
        if len(reached) == len(LEVELS):
            raise _AllReached

    with suppress(_AllReached):
        peer.run(THEIR_ITERATIONS, look)
    return reached


class _AllReached(Exception):
    """Stops a solver that has reached every level."""


def _seconds(peer: PeerSolver, first: FirstReached, repeats: int) -> float:
    if peer.slow:
        return first.cpu_seconds
    return min(_cpu_seconds(lambda: peer.run(first.iteration, None)) for _ in range(repeats))


def _cpu_seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began
