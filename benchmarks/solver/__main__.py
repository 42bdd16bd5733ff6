"""The figures of docs/results.md: `python -m benchmarks.solver SET [--out FILE]`.

Every case is drawn from a seed, solved in this process with default settings, and written as one JSON line. Sets that
take long can be measured in pieces, by `--sizes`, `--solvers` and `--repeats`.
"""

from __future__ import annotations

import argparse
import inspect
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.peers.solver_race import baseline_peers, ours, theirs, whole_decompositions
from benchmarks.solver.choices import choices
from benchmarks.solver.identifiable import identifiable
from benchmarks.solver.ill_conditioned import ill_conditioned
from benchmarks.solver.known_failures import known_failures
from benchmarks.solver.roofline import roofline
from benchmarks.solver.timed_solve import solve
from dcfpca.rpca.column_blocks import equal_counts, split
from dcfpca.rpca.refinement.closing import with_closing_rounds
from dcfpca.rpca.refinement.closing_plan import ClosingPlan
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import (
    Outliers,
    Problem,
    Recipe,
    generate,
    paper_problem,
    relative_error,
    relative_squared_error,
    singular_value_error,
)

Row = dict[str, object]
TOLERANCE = 1e-11
SPEC_TOLERANCE = 1e-9
OURS = "subspace"
PEERS = ("accelerated alternating projections", "ALM, partial SVD", "ALM, full SVD")
TOLD = {"rank": "subspace, rank given", "bound 2r": "subspace, bound 2r"}


def method(problem: Problem, factor: float, rounds: int = 150) -> Method:
    """Told the rank for factor 1, else only the upper bound factor × rank."""
    width = round(problem.rank * factor)
    return subspace_method(SubspaceSolver(problem.M.shape[0], width, rounds, TOLERANCE, fixed_rank=factor == 1))


def figures(problem: Problem, factor: float, **about: object) -> Row:
    solved = asdict(solve(method(problem, factor), problem))
    return {**about, "bound": factor, "true_rank": problem.rank, **solved}


def easy(sizes: Sequence[int] = (500, 1000, 3000)) -> Iterator[Row]:
    for size in sizes:
        for kind in (Outliers.IMPULSE, Outliers.UNIFORM):
            for factor in (1, 2):
                recipe = Recipe(size, size, size // 20, 0.05, kind, counts=equal_counts(size, 10))
                yield figures(generate(recipe, 0), factor, size=size, kind=kind.value)


def cells() -> Iterator[Row]:
    for factor in (1, 1.3, 2):
        for share in (0.05, 0.10, 0.15, 0.20):
            for sparsity in (0.05, 0.10, 0.15, 0.20, 0.25, 0.30):
                problem = paper_problem(500, round(500 * share), sparsity, 10, 0)
                run = simulate(method(problem, factor), problem.sites())
                error = relative_squared_error(run.low_rank, problem.L)
                rank = run.consensus.progress.rank
                yield {"bound": factor, "r/n": share, "s": sparsity, "squared_error_L": error} | {
                    "rank": rank, "true_rank": problem.rank, "rounds": run.consensus.round,
                    "outcome": str(run.consensus.outcome),
                }  # fmt: skip


def kinds() -> Iterator[Row]:
    cases: list[tuple[str, Recipe]] = []
    counts = equal_counts(300, 10)
    for sparsity in (0.05, 0.15):
        cases += [(kind.value, Recipe(300, 300, 15, sparsity, kind, counts=counts)) for kind in Outliers]
        cases.append(("condition 100", Recipe(300, 300, 15, sparsity, condition=100.0, counts=counts)))
        cases.append(("a third of the factors", Recipe(300, 300, 15, sparsity, third=True, counts=counts)))
        cases.append(("20 % missing", Recipe(300, 300, 15, sparsity, missing=0.2, counts=counts)))
        cases.append(("1 % noise", Recipe(300, 300, 15, sparsity, noise=0.01, counts=counts)))
    for name, recipe in cases:
        for factor in (1, 2):
            problem = generate(recipe, 0)
            run = simulate(method(problem, factor), problem.sites())
            row: Row = {"case": name, "s": recipe.sparsity, "bound": factor, "rounds": run.consensus.round}
            row |= {"relative_error_L": relative_error(run.low_rank, problem.L), "rank": run.consensus.progress.rank}
            if recipe.noise:
                row["oracle"] = relative_error(oracle(problem), problem.L)
            yield row


def closing() -> Iterator[Row]:
    """The 24 cells by a whole run, closing rounds and all, with the tolerance of a spec: does exact data stay exact?"""
    for factor in (1, 2):
        for share in (0.05, 0.10, 0.15, 0.20):
            for sparsity in (0.05, 0.10, 0.15, 0.20, 0.25, 0.30):
                problem = paper_problem(500, round(500 * share), sparsity, 10, 0)
                width = problem.rank * factor
                inner = subspace_method(SubspaceSolver(500, width, 150, SPEC_TOLERANCE, fixed_rank=factor == 1))
                run = simulate(with_closing_rounds(inner, fixed_rank=factor == 1), problem.sites())
                plan = ClosingPlan.of(run.consensus.broadcast)
                flags, hit = run.outliers.toarray() != 0.0, problem.S != 0.0
                yield {
                    "bound": factor, "r/n": share, "s": sparsity, "ending": plan.ending.name.lower(),
                    "squared_error_L": relative_squared_error(run.low_rank, problem.L), "rank": plan.rank,
                    "true_rank": problem.rank, "rounds": run.consensus.round,
                    "wrong_flags": int(np.count_nonzero(flags != hit)),
                }  # fmt: skip


def oracle(problem: Problem) -> np.ndarray:
    """Least squares of the true rank on the entries that are truly clean."""
    clean, L = np.where(problem.S == 0.0, problem.M, np.nan), np.zeros_like(problem.M)
    for _ in range(200):
        P, s, Q = np.linalg.svd(np.where(np.isnan(clean), L, clean), full_matrices=False)
        L = (P[:, : problem.rank] * s[: problem.rank]) @ Q[: problem.rank]
    return L


def splits() -> Iterator[Row]:
    for noise in (0.0, 0.01):
        problem = generate(Recipe(300, 400, 15, 0.1, noise=noise, missing=0.05, counts=(400,)), 0)
        for factor in (1, 2):
            pooled = simulate(method(problem, factor), problem.sites()).low_rank
            for counts in (equal_counts(400, 10), equal_counts(400, 50), (1, 2, 300, 97), (391, *(1,) * 9)):
                dealt = simulate(method(problem, factor), split(problem.M, counts)).low_rank
                row: Row = {"noise": noise, "bound": factor, "sites": len(counts), "largest": max(counts)}
                yield row | {"difference": relative_error(dealt, pooled)}


def values(sizes: Sequence[int] = (200, 500, 1000, 5000)) -> Iterator[Row]:
    for size in sizes:
        problem = paper_problem(size, size // 20, 0.05, 10, 0)
        chosen = method(problem, 2, rounds=40)
        run = simulate(chosen, problem.sites())
        found = chosen.model(run.consensus)["singular_values"]
        left, right = np.linalg.qr(problem.L[:, : problem.rank])[0], problem.L
        truth = np.linalg.svd(left.T @ right, compute_uv=False).astype(np.float64)
        error = singular_value_error(found, truth, problem.rank)
        row: Row = {"size": size, "singular_value_error": error, "rank": run.consensus.progress.rank}
        yield row | {"true_rank": problem.rank, "rounds": run.consensus.round}


def speed(sizes: Sequence[int] = (500, 1000, 3000), solvers: Sequence[str] = (), repeats: int = 3) -> Iterator[Row]:
    """CPU seconds on one thread to ‖L−L₀‖²/‖L₀‖² of 1e-6 and 1e-10, the result formed; the best of `repeats`."""
    for size in sizes:
        problem = paper_problem(size, size // 20, 0.05, 10, 0)
        wanted = solvers or (OURS, *PEERS)
        rivals = [peer for peer in (*baseline_peers(problem), whole_decompositions(problem)) if peer.name in wanted]
        own = ours(problem, repeats) if OURS in wanted else ()
        for finish in chain(own, theirs(problem, rivals, repeats)):
            name = TOLD[finish.told] if finish.solver == OURS else finish.solver
            yield {"size": size, "solver": name, "level": float(finish.level), "cpu_seconds": finish.cpu_seconds}


def step() -> Iterator[Row]:
    """The local step alone: share of the GEMM peak, distance from one read of M per pass, memory."""
    for rows, columns, rank in ((2000, 4000, 5), (2000, 4000, 50), (2000, 4000, 100), (2000, 4000, 200)):
        problem = paper_problem_of(rows, columns, rank)
        solved = solve(method(problem, 1, rounds=10), problem)
        reading = _read_seconds(problem.M)
        passes = 2.0
        row: Row = {"rows": rows, "columns": columns, "rank": rank, "gemm_fraction": solved.gemm_fraction}
        row |= {"seconds_per_round": solved.seconds_per_round, "read_seconds_per_pass": reading}
        row |= {"passes_over_read": solved.seconds_per_round / passes / reading}
        yield row | {"memory_over_matrix": solved.peak_bytes / solved.matrix_bytes}


def paper_problem_of(rows: int, columns: int, rank: int) -> Problem:
    return generate(Recipe(rows, columns, rank, 0.05, counts=equal_counts(columns, 2)), 0)


def _read_seconds(M: np.ndarray) -> float:
    best = np.inf
    for _ in range(5):
        began = time.process_time()
        M.sum()
        best = min(best, time.process_time() - began)
    return best


SETS: dict[str, Callable[..., Iterator[Row]]] = {
    "easy": easy, "cells": cells, "closing": closing,
    "kinds": kinds, "split": splits, "values": values, "speed": speed, "step": step,
    "known-failures": known_failures, "ill-conditioned": ill_conditioned, "choices": choices, "roofline": roofline,
    "identifiable": identifiable,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", choices=sorted(SETS))
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--solvers", nargs="+", choices=(OURS, *PEERS))
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--first", type=int, help="stop after this many lines")
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    measure = SETS[wanted.set]
    pieces = {key: value for key in ("sizes", "solvers", "repeats") if (value := getattr(wanted, key))}
    if unknown := set(pieces) - set(inspect.signature(measure).parameters):
        parser.error(f"{wanted.set} has no choice of {', '.join(sorted(unknown))}")
    with threadpool_limits(1):
        for row in islice(measure(**pieces), wanted.first):
            line = json.dumps(row)
            print(line, flush=True)
            if wanted.out:
                with wanted.out.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
