"""Private subspaces against ε, with and without gross errors, beside plain DP-PCA with the same clip and budget.

    python -m benchmarks.private_subspace cells --rows 200 --rank 5 --columns 10000 [--epsilon 1 …] [--json FILE]
    python -m benchmarks.private_subspace rounds [--json FILE]

`cells`: M = L + noise, entries of L of deviation 1 with equally strong factors, noise 0.1, and ±10 added to 5 % of the
entries or to none; ten sites, one conspirator, δ = 10⁻⁶, three rounds. Plain DP-PCA (Dwork, Talwar, Thakurta and Zhang
2014) clips the columns as they are, with the clip that the private run chose, and adds noise to their m × m covariance
once, with the whole budget. F1 is of the flags of 2000 more columns, 5 % of whose entries are wrong by ±1, as much as
entries of L are large, projected on each U. `rounds`: CPU seconds of one site's round with privacy and without,
with the compiled loops of the extra `fast` and without them, in turn. Rows of other cells that FILE has are kept.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dcfpca.methods import method_of, schedule_of
from dcfpca.privacy.noise_stream import KEY_BYTES, noise_entropy
from dcfpca.privacy.settings import PrivacySettings
from dcfpca.rpca.column_blocks import ArrayColumns, equal_counts, split
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.private.schedule import predicted_error
from dcfpca.rpca.private.site import PrivatePlan
from dcfpca.rpca.private.stages import PrivateSolver, private_method
from dcfpca.rpca.private.whole_numbers import grid_digest
from dcfpca.rpca.robust_projection import project
from dcfpca.rpca.simulate import exchange, simulate_private
from dcfpca.rpca.stage_list import Method
from dcfpca.spec import parse_spec

SITES, CONSPIRATORS, DELTA, ROUNDS = 10, 1, 1e-6, 3
EPSILONS = (0.5, 1.0, 3.0, 8.0)
NOISE, ERROR_SHARE, GROSS, MODERATE = 0.1, 0.05, 10.0, 1.0
FLAGGED_COLUMNS = 2000
PIECE = 10_000
MEASURED, REPEATS = range(2, 6), 5


@dataclass(frozen=True, slots=True)
class Cell:
    """One problem."""

    rows: int
    rank: int
    columns: int
    gross: bool

    def truth(self) -> FloatArray:
        """The subspace."""
        return np.linalg.qr(np.random.default_rng(self.rows).standard_normal((self.rows, self.rank)))[0]

    def data(self) -> NDArray[np.float32]:
        """The columns, in single precision since they may be many."""
        M = np.empty((self.rows, self.columns), np.float32)
        for start in range(0, self.columns, PIECE):
            stop = min(start + PIECE, self.columns)
            M[:, start:stop], _ = self.drawn(stop - start, start, GROSS if self.gross else 0.0)
        return M

    def drawn(self, count: int, seed: int, size: float) -> tuple[FloatArray, NDArray[np.bool_]]:
        """So many columns with errors of this size, and which entries are wrong."""
        draws = np.random.default_rng([seed, self.rank])
        L = np.sqrt(self.rows / self.rank) * self.truth() @ draws.standard_normal((self.rank, count))
        wrong = (draws.random(L.shape) < ERROR_SHARE) & (size > 0.0)
        L += NOISE * draws.standard_normal(L.shape)
        L[wrong] += size * draws.choice([-1.0, 1.0], int(wrong.sum()))
        return L, wrong


def measure(cell: Cell, epsilons: Sequence[float]) -> Iterator[dict[str, Any]]:
    """One row for every ε."""
    M, (own, wrong) = cell.data(), cell.drawn(FLAGGED_COLUMNS, 10**9, MODERATE)
    truth, parts = cell.truth(), split(M, equal_counts(cell.columns, SITES))
    for epsilon in epsilons:
        solver = _solver(cell, epsilon)
        method = private_method(solver)
        end = simulate_private(method, parts, np.random.default_rng(7).bytes)
        plan, U = PrivatePlan.of(end.broadcast), method.model(end)["U"]
        plain = plain_private_pca(M, cell.rank, plan.clip, solver.schedule.rho, np.random.default_rng(8))
        surplus = SITES / (SITES - CONSPIRATORS)
        yield {
            **asdict(cell),
            "epsilon": epsilon,
            "sine": sine(truth, U),
            "predicted": predicted_error(cell.rows, cell.rank, cell.columns, solver.schedule, surplus),
            "plain_sine": sine(truth, plain),
            "f1": f1(project(U, own).outliers != 0.0, wrong),
            "plain_f1": f1(project(plain, own).outliers != 0.0, wrong),
            "true_f1": f1(project(truth, own).outliers != 0.0, wrong),
            "clip": plan.clip,
        }


def _solver(cell: Cell, epsilon: float) -> PrivateSolver:
    privacy = PrivacySettings(epsilon=epsilon, delta=DELTA, rounds=ROUNDS)
    return PrivateSolver(
        rows=cell.rows,
        width=cell.rank,
        schedule=schedule_of(privacy),
        conspirators=CONSPIRATORS,
        max_error=float("inf"),
    )


def plain_private_pca(
    M: NDArray[np.float32], rank: int, clip: float, rho: float, draws: np.random.Generator
) -> FloatArray:
    """Leading directions of Σ ỹỹᵀ with one release of symmetric noise; ten sites share it, one of them conspires."""
    rows = M.shape[0]
    covariance = np.zeros((rows, rows))
    for start in range(0, M.shape[1], PIECE):
        piece = np.asarray(M[:, start : start + PIECE], dtype=np.float64)
        Y = piece / np.maximum(np.linalg.norm(piece, axis=0), clip)
        covariance += Y @ Y.T
    deviation = np.sqrt(SITES / (SITES - CONSPIRATORS) / (2.0 * rho))
    upper = np.triu(draws.normal(0.0, deviation, covariance.shape))
    noisy = covariance + upper + np.triu(upper, 1).T
    leading: FloatArray = np.linalg.eigh(noisy)[1][:, -rank:]
    return leading


def sine(truth: FloatArray, U: FloatArray) -> float:
    """Of the largest angle."""
    return float(np.linalg.norm(truth - U @ (U.T @ truth), 2))


def f1(flagged: NDArray[np.bool_], wrong: NDArray[np.bool_]) -> float:
    """Harmonic mean of precision and recall."""
    return float(2.0 * (flagged & wrong).sum() / (flagged.sum() + wrong.sum()))


def round_costs(rows: int = 1000, rank: int = 10, columns: int = 5000) -> Iterator[dict[str, Any]]:
    """CPU seconds of a site's rounds once the tensors are of their final width: without privacy, and with its noise.
    Rounds take turns, so that what else the machine does concerns both."""
    M = Cell(rows, rank, columns, gross=True).data().astype(np.float64)
    keys = {"rows": rows, "rank": rank, "closing_rounds": False}
    private = {"epsilon": 8.0, "clip": 10.0, "max_error": 1.0, "rounds": 6}
    exact, noisy = method_of(parse_spec(keys)), method_of(parse_spec({**keys, "privacy": private}))
    ways = {"without": exact, "with": noisy}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPEATS):
        for costs in zip(*(_rounds(method, M) for method in ways.values()), strict=True):
            for own, cost in zip(seconds.values(), costs, strict=True):
                own.append(cost)
    for name, own in seconds.items():
        yield {"way": name, "rows": rows, "rank": rank, "columns": columns, "seconds": float(np.median(own))}


def _rounds(method: Method, M: FloatArray) -> Iterator[float]:
    """CPU seconds of the rounds MEASURED."""
    site, consensus = method.site(ArrayColumns(M)), method.begin()
    while consensus.outcome is None and consensus.round < MEASURED.stop:
        clock = time.process_time()
        total = exchange(method, consensus, [site])
        if isinstance(method.solver, PrivateSolver):
            answer = total.sums.flat()
            entropy = noise_entropy(bytes(KEY_BYTES), "run", consensus.round, b"consensus", grid_digest(answer))
            method.solver.noised(consensus.stage, answer, M.shape[1], 3, entropy)
        if consensus.round in MEASURED:
            yield time.process_time() - clock
        consensus = method.advance(consensus, total)


def _keep(path: Path, key: str, rows: list[dict[str, Any]], same: tuple[str, ...]) -> None:
    kept = json.loads(path.read_text()) if path.exists() else {}
    new = {tuple(row[name] for name in same) for row in rows}
    kept[key] = [row for row in kept.get(key, []) if tuple(row[name] for name in same) not in new] + rows
    kept[key].sort(key=lambda row: [row[name] for name in same])
    path.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cells", "rounds"))
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--rank", type=int, default=5)
    parser.add_argument("--columns", type=int, action="append")
    parser.add_argument("--epsilon", type=float, action="append")
    parser.add_argument("--gross", choices=("both", "yes", "no"), default="both")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/private-subspace.json"))
    asked = parser.parse_args()
    with threadpool_limits(1):
        if asked.what == "rounds":
            costs = round_costs(asked.rows, asked.rank, *asked.columns) if asked.columns else round_costs()
            _keep(asked.json, "rounds", list(costs), ("way",))
            return
        for columns in asked.columns or [10_000]:
            for gross in {"both": (False, True), "yes": (True,), "no": (False,)}[asked.gross]:
                rows = list(measure(Cell(asked.rows, asked.rank, columns, gross), asked.epsilon or EPSILONS))
                _keep(asked.json, "cells", rows, ("rows", "rank", "columns", "gross", "epsilon"))
                print("\n".join(json.dumps(row) for row in rows), flush=True)


if __name__ == "__main__":
    main()
