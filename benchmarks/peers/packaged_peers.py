"""Robust PCA packages that a user would install, timed to the same levels as the other peers.

Packages do not show their iterates, so the iteration that reaches a level is found by runs of different lengths:
doubled until one reaches it, then bisected. Each package has a process and a time limit of its own, from when it is
imported, so that a slow one delays the others by no more than that; what it had reached by then counts.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from multiprocessing.connection import Connection

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.peers.solver_race import LEVELS, TimeToLevel
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.synthetic import Problem, relative_squared_error

OWN_TOLERANCE = "own tolerance"
MOST_ITERATIONS = 512
LONG_SECONDS = 1.0  # runs that take longer are not repeated
LIMIT_SECONDS = 60.0
READY = "ready"

Run = Callable[[int | None], FloatArray]
"""L after so many iterations; with None, after as many as the package takes by default."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package of the index. `settings` imports it and returns the ways to call it, that of its documentation first.

    `iterates` is False where there is nothing but a whole run.
    """

    name: str
    told: str
    settings: Callable[[Problem], Mapping[str, Run]]
    iterates: bool = True


def _pyrpca(problem: Problem) -> Mapping[str, Run]:
    """Principal component pursuit by inexact ALM, with the weight of its README; its growth of μ is 1.5."""
    solve, M = import_module("pyrpca").rpca_pcp_ialm, problem.M
    weight = 1.0 / float(np.sqrt(max(M.shape)))

    def run(rho: float, count: int | None) -> FloatArray:
        length = {} if count is None else {"max_iter": count, "tol": 0.0}
        return np.asarray(solve(M, weight, rho=rho, verbose=False, **length)[0])

    return {f"rho {rho}": partial(run, rho) for rho in (1.5, 2.0)}


def _rpca(problem: Problem) -> Mapping[str, Run]:
    """Accelerated alternating projections. It subtracts each column's mean first, which the outliers have moved, so
    that what is left of L has one direction more than L."""
    solver, M = import_module("rpca").RobustPCA, problem.M

    def run(beta: float | None, count: int | None) -> FloatArray:
        length = {} if count is None else {"max_iter": count, "tol": 0.0}
        found = solver(n_components=problem.rank + 1, beta=beta, verbose=False, **length).fit(M)
        return np.asarray(found.low_rank_ + found.mean_)

    usual = 0.5 * float(M.size) ** -0.25
    shares = {f"beta {share:g} of the default": partial(run, share * usual) for share in (0.5, 0.25)}
    return {"beta as by default": partial(run, None)} | shares


def _tensorly(problem: Problem) -> Mapping[str, Run]:
    """Robust tensor PCA by ALM. A matrix has two unfoldings, each with a nuclear norm, so that the weight of the sparse
    part is twice that of principal component pursuit; with its default of 1, S stays empty on such a matrix."""
    solve, M = import_module("tensorly.decomposition").robust_pca, problem.M
    weight = 2.0 / float(np.sqrt(max(M.shape)))

    def run(rate: float, count: int | None) -> FloatArray:
        length = {} if count is None else {"n_iter_max": count, "tol": 0.0}
        return np.asarray(solve(M, reg_E=weight, learning_rate=rate, verbose=0, **length)[0])

    return {f"learning_rate {rate}": partial(run, rate) for rate in (1.1, 1.5)}


def _scikit_learn(problem: Problem) -> Mapping[str, Run]:
    """Plain PCA, which is not robust: the floor."""
    solver = import_module("sklearn.decomposition").PCA

    def run(_: int | None) -> FloatArray:
        found = solver(n_components=problem.rank, random_state=0)
        return np.asarray(found.inverse_transform(found.fit_transform(problem.M)))

    return {"": run}


PACKAGES = (
    Package("pyrpca", "nothing", _pyrpca),
    Package("rpca", "rank", _rpca),
    Package("tensorly", "nothing", _tensorly),
    Package("scikit-learn", "rank", _scikit_learn, iterates=False),
)


def installed(packages: Sequence[Package] = PACKAGES) -> dict[str, str | None]:
    """The version of each package; None where it is not installed."""
    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package.name] = version(package.name)
        except PackageNotFoundError:
            found[package.name] = None
    return found


def packaged(
    problem: Problem, repeats: int, limit: float = LIMIT_SECONDS, packages: Sequence[Package] = PACKAGES
) -> Iterator[TimeToLevel]:
    """Every installed package: with its first settings to its own tolerance, and with its fastest to every level."""
    versions = installed(packages)
    for package in packages:
        if (found := versions[package.name]) is not None:
            yield from _within_limit(package, found, problem, repeats, limit)


def _within_limit(package: Package, number: str, problem: Problem, repeats: int, limit: float) -> Iterator[TimeToLevel]:
    """The best row per level of what a process of its own sends before the limit."""
    spawn = get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_measure, args=(package, number, problem, repeats, there), daemon=True)
    process.start()
    there.close()
    rows, ended = _received(here, limit)
    process.kill()
    process.join()
    for level in (OWN_TOLERANCE, *LEVELS):
        reached = [row for row in rows if row.level == level and row.cpu_seconds is not None]
        note = "" if ended else f"not within {limit:g} s"
        lost = TimeToLevel(package.name, package.told, level, None, None, version=number, note=note)
        yield min(reached, key=lambda row: row.cpu_seconds or 0.0, default=lost)


def _received(source: Connection, limit: float) -> tuple[list[TimeToLevel], bool]:
    """The rows that came, and whether the sender came to its end within the limit, counted from its READY."""
    rows: list[TimeToLevel] = []
    try:
        source.recv()
        deadline = time.monotonic() + limit
        while source.poll(max(0.0, deadline - time.monotonic())):
            rows.append(source.recv())
    except EOFError:
        return rows, True
    return rows, False


def _measure(package: Package, number: str, problem: Problem, repeats: int, target: Connection) -> None:
    """Send READY when the package is imported, then a row for every level that some settings reach, when it is known.

    The last settings, which have the fastest pace, come first, then the whole run by those of the documentation, so
    that both are known if the limit cuts the others off.
    """
    with threadpool_limits(1), redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
        every = package.settings(problem)
        target.send(READY)
        row = partial(TimeToLevel, package.name, package.told, version=number)
        whole, run = next(iter(every.items()))
        for place, setting in enumerate(reversed(list(every))):
            if package.iterates:
                for level, count, best in times_to_levels(every[setting], problem, repeats):
                    target.send(row(level, best, count, setting))
            if place == 0:
                error, seconds = _timed(run, None, problem)
                target.send(row(OWN_TOLERANCE, seconds, None, whole, squared_error=error))


def times_to_levels(run: Run, problem: Problem, repeats: int) -> Iterator[tuple[str, int, float]]:
    """Each level that is reached, the iterations to it, and their CPU seconds."""
    known: dict[int, tuple[float, float]] = {}

    def error_after(count: int) -> float:
        if count not in known:
            known[count] = _timed(run, count, problem)
        return known[count][0]

    for level, value in LEVELS.items():
        count = first_length(error_after, value, MOST_ITERATIONS)
        if count is None:
            return
        seconds = known[count][1]
        again = repeats - 1 if seconds < LONG_SECONDS else 0
        yield level, count, min([seconds, *(_timed(run, count, problem)[1] for _ in range(again))])


def first_length(error_after: Callable[[int], float], level: float, most: int) -> int | None:
    """The shortest run whose error is at most this, if errors fall from run to run; None beyond `most` iterations, or
    where eight times as many iterations have not brought the error down by a tenth."""
    count, earlier = 1, list[float]()
    while (error := error_after(count)) > level or not np.isfinite(error):
        earlier.append(error)
        if 2 * count > most or (len(earlier) > 5 and error > 0.9 * earlier[-4]):
            return None
        count *= 2
    reached, below = count, count // 2
    while reached - below > 1:
        middle = (reached + below) // 2
        reached, below = (middle, below) if error_after(middle) <= level else (reached, middle)
    return reached


def _timed(run: Run, count: int | None, problem: Problem) -> tuple[float, float]:
    """The squared relative error of L, and the CPU seconds without measuring it."""
    began = time.process_time()
    L = run(count)
    seconds = time.process_time() - began
    return relative_squared_error(L, problem.L), seconds
