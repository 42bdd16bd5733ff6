"""What the machine allows of a solve at rank 5, n = 3000, beside what it takes: memory and arithmetic of one core.

The limits are measured in this process: bytes a second of a sum over an array that no cache holds, and operations a
second of a matrix product. A round reads M once and does two passes on it, block by block in a cache; the result reads
M once more and writes L. Seconds at the limit are the larger of both, as if they overlapped without loss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from benchmarks.peers.solver_race import baseline_peers, ours, theirs
from benchmarks.solver.timed_solve import solve
from dcfpca.rpca.kernels.compiled_loops import active_loops
from dcfpca.rpca.method import FloatArray, TensorMessage, Total
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Problem, paper_problem

Row = dict[str, object]
SIZE, RANK, LEVEL, PASSES, REPEATS = 3000, 5, "1e-6", 2, 7
FLOPS = 4 * RANK + 6  # of an entry in a pass: L, ψ and the sums
BLOCK = 256  # columns of a pass that a cache holds


def roofline() -> Iterator[Row]:
    """The machine, a pass, a round, the result and the whole solve; and the race of the solve with IRCUR."""
    problem = paper_problem(SIZE, RANK, 0.05, 10, 0)
    bandwidth, peaks = _bandwidth(), {kind: _peak(kind) for kind in (np.float32, np.float64)}
    yield {"what": "machine", "read_bytes_s": bandwidth, "single_flops": peaks[np.float32],
           "double_flops": peaks[np.float64]}  # fmt: skip
    for kind, peak in peaks.items():
        spent, entries = _pass_seconds(problem.M, kind), SIZE * BLOCK
        name = f"pass, {np.dtype(kind).itemsize * 8} bits, in cache"
        yield {"what": name, "seconds": spent, "limit": entries * FLOPS / peak}
    solver = SubspaceSolver(SIZE, RANK, 9, 1e-11, fixed_rank=True)
    rounds = solve(subspace_method(solver), problem).rounds_to[LEVEL]
    assert rounds is not None
    opening, each, result = _phases(subspace_method(replace(solver, rounds=rounds)), problem)
    read, arithmetic = problem.M.nbytes / bandwidth, PASSES * FLOPS * problem.M.size / peaks[np.float32]
    limit, written = max(read, arithmetic), 2 * read  # M read and L written
    yield {"what": "round", "seconds": each, "limit": limit, "read": read, "arithmetic": arithmetic}
    yield {"what": "result", "seconds": result, "limit": written}
    whole = opening + rounds * each + result
    yield {"what": "whole", "seconds": whole, "limit": rounds * limit + written, "rounds": rounds}
    mine = next(one.cpu_seconds for one in ours(problem, REPEATS) if (one.told, one.level) == ("rank", LEVEL))
    yield {"what": "race", "seconds": mine, "ircur": _ircur(problem)}


def _best(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def _bandwidth() -> float:
    array = np.ones(1 << 25)
    return array.nbytes / _best(array.sum)


def _peak(kind: type[np.floating]) -> float:
    square = np.random.default_rng(0).standard_normal((1200, 1200)).astype(kind)
    return 2 * 1200**3 / _best(lambda: square @ square)


def _pass_seconds(M: FloatArray, kind: type[np.floating]) -> float:
    """One pass over a block that a cache holds."""
    rng, block = np.random.default_rng(0), np.ascontiguousarray(M[:, :BLOCK])
    U = np.linalg.qr(rng.standard_normal((SIZE, RANK)))[0].astype(kind)
    shrunk = rng.standard_normal((BLOCK, RANK)).astype(kind)
    gained, influences = np.empty_like(shrunk), np.empty((2, BLOCK), kind)

    def once() -> None:
        active_loops().influence_pass(block, U, shrunk, 2.0, 3.0, influences, gained, (0,) * RANK)

    once()
    return _best(once)


def _phases(method: Method, problem: Problem) -> tuple[float, float, float]:
    """CPU seconds of the opening, of a round and of the result: the least of several solves, all sites together."""
    found = np.full(3, np.inf)
    for _ in range(REPEATS):
        sites, consensus, spent = [method.site(one) for one in problem.sites()], method.begin(), []
        while consensus.outcome is None:
            began = time.process_time()
            sent = [site.answer(consensus) for site in sites]
            total = TensorMessage(sum(one.tensor for one in sent), sum(one.scalars for one in sent))  # type: ignore[arg-type]
            consensus = method.advance(consensus, Total(total, len(sites)))
            spent.append(time.process_time() - began)
        began = time.process_time()
        for site in sites:
            for _block in site.finish(consensus):
                pass
        found = np.minimum(found, [spent[0], float(np.mean(spent[1:])), time.process_time() - began])
    return float(found[0]), float(found[1]), float(found[2])


def _ircur(problem: Problem) -> float | None:
    """CPU seconds of its fastest setting to the same level, as in the race of solvers."""
    rivals = [peer for peer in baseline_peers(problem) if peer.name == "IRCUR"]
    return next(one.cpu_seconds for one in theirs(problem, rivals, REPEATS) if one.level == LEVEL)
