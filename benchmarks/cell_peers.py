"""Wrong entries in real tables: a federation of ours against other methods that have all data in one place.

    python -m benchmarks.cell_peers --data DIR [--tables NAME,…] [--ways WAY,…] [--who NAME] [--json FILE]

The problems are those of `python -m benchmarks.cells --only errors`: 3 % of the entries changed, nothing said of rank
or share. Features are in units of their median deviation for all. Every method flags by its own rule: medians and
ROBPCA beyond 3.5 (`benchmarks.table_peers`), principal component pursuit what is not zero in S, DetectDeviatingCells
by its quantile, forests by scikit-learn's threshold. A forest is of one feature's values, or of the residuals of its
ridge regression on the others. DetectDeviatingCells takes part where robpy is importable (0.0.6), ROBPCA where Rscript
has rrcov (`PcaHubert`, which chooses the rank). MacroPCA needs R's cellWise, which Debian does not have.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import Ridge
from sklearn.metrics import average_precision_score
from threadpoolctl import threadpool_limits

from benchmarks.cells import WAYS, Problem, best_f1, problems, sizes_of
from benchmarks.real_tables import chosen_tables, tool_beside
from benchmarks.table_peers import by_residual, detect_deviating_cells, filled, medians, pursuit
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.simulate import simulate
from dcfpca.spec import parse_spec

Found = tuple[NDArray[np.bool_], FloatArray]  # flags and order, features × samples
OURS = "ours, as a federation"
ROBPCA = """
files <- commandArgs(TRUE)
set.seed(0)
X <- as.matrix(read.table(files[1]))
found <- rrcov::PcaHubert(X)
L <- sweep(found@scores %*% t(found@loadings), 2, found@center, "+")
write.table(L, files[2], row.names = FALSE, col.names = FALSE)
"""


def ours(problem: Problem) -> Found:
    """By the table's sites."""
    sites = [np.flatnonzero(problem.site == number) for number in range(problem.site.max() + 1)]
    method = method_of(parse_spec({"rows": problem.X.shape[1], "scaling": "robust"}))
    run = simulate(method, [ArrayColumns(problem.X[rows].T) for rows in sites])
    flags = np.zeros(problem.X.T.shape, bool)
    for rows, result in zip(sites, run.results, strict=True):
        flags[:, rows] = result.S.toarray() != 0.0
    return flags, sizes_of(run, problem.X, "robust").T


def robpca(M: FloatArray, _: int) -> Found:
    """Residuals from the directions that rrcov's PcaHubert chooses."""
    with TemporaryDirectory() as folder:
        given, fitted = Path(folder) / "given", Path(folder) / "fitted"
        np.savetxt(given, filled(M).T)
        subprocess.run(["Rscript", "-e", ROBPCA, given, fitted], check=True, capture_output=True)
        return by_residual(M, np.loadtxt(fitted, ndmin=2).T)


def forests(M: FloatArray, _: int) -> Found:
    """One a feature, of its values."""
    parts = [_forest(row) for row in filled(M)]
    return np.array([flags for flags, _ in parts]), np.array([order for _, order in parts])


def forests_of_residuals(M: FloatArray, _: int) -> Found:
    """One a feature, of what its ridge regression on the others leaves."""
    X = filled(M)
    rest = np.empty_like(X)
    for k, row in enumerate(X):
        others = np.delete(X, k, axis=0).T
        rest[k] = row - Ridge(alpha=1.0).fit(others, row).predict(others)
    return forests(rest, 0)


def _forest(values: FloatArray) -> Found:
    forest = IsolationForest(n_estimators=100, random_state=0).fit(values[:, None])
    order = -forest.score_samples(values[:, None])
    return order > -forest.offset_, order


def peers() -> dict[str, Callable[[FloatArray, int], Found]]:
    known: dict[str, Callable[[FloatArray, int], Found]] = {
        "medians": medians,
        "principal component pursuit": pursuit,
        "isolation forest per feature": forests,
        "isolation forest per feature, ridge residuals": forests_of_residuals,
    }
    if find_spec("robpy"):
        known["DetectDeviatingCells (robpy)"] = detect_deviating_cells
    if shutil.which("Rscript"):
        known["ROBPCA (rrcov)"] = robpca
    return known


def scaled(X: FloatArray) -> FloatArray:
    """Features × samples, centred by medians, in units of median deviations."""
    off = X - np.nanmedian(X, axis=0)
    size = 1.4826 * np.nanmedian(np.abs(off), axis=0)
    deviation = np.nanstd(X, axis=0)
    return np.asarray((off / np.where(size > 0.0, size, np.where(deviation > 0.0, deviation, 1.0))).T)


def measure(cells: Any, problem: Problem, who: str, find: Callable[[], Found]) -> dict[str, Any]:
    """One method on one problem, judged."""
    began, head = time.process_time(), {"problem": problem.name, "who": who}
    try:
        flags, order = find()
    except Exception as error:  # whatever a peer raises is its answer
        return {**head, "refused": f"{type(error).__name__}: {str(error)[:80]}"}
    seen = ~np.isnan(problem.X)
    counted, order = seen & ~problem.ignore, np.where(seen, order.T, 0.0)
    found = cells.judge(flags.T & seen, problem.wrong, problem.ignore)
    return {
        **head,
        "f1": found["f1"],
        "precision": found["precision"],
        "best_f1": best_f1(order, problem.wrong, problem.ignore),
        "average_precision": float(average_precision_score(problem.wrong[counted], order[counted])),
        "seconds": time.process_time() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tables", default="", help="tables to run; without, all")
    parser.add_argument("--ways", default=",".join(WAYS), help="kinds of errors")
    parser.add_argument("--who", default="", help="only methods with this in their name")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    cells, tables = tool_beside(wanted.data, "cells"), chosen_tables(wanted.data, wanted.tables)
    rows = []
    with threadpool_limits(1):
        for problem in problems(cells, "errors", tables, quick=False):
            if problem.name.split()[1] not in wanted.ways.split(","):
                continue
            M = scaled(problem.X)
            calls: dict[str, Callable[[], Found]] = {OURS: partial(ours, problem)}
            calls |= {name: partial(find, M, 0) for name, find in peers().items()}
            for who, find in calls.items():
                if wanted.who in who:
                    rows.append(measure(cells, problem, who, find))
                    print(json.dumps(rows[-1]), flush=True)
    if wanted.json is not None:
        wanted.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
