"""Other methods on the tables of `benchmarks.real_tables`, all with the data of all sites in one place.

    python -m benchmarks.table_peers --data DIR [--sets asd,prsa,heart,highway] [--who NAME] [--every N] [--json FILE]

Rows that FILE has of other sets and methods are kept.

Where robpy is installed (0.0.6; it wants an older scikit-learn than this project's, so give it an environment of its
own), also DetectDeviatingCells and ROBPCA. DetectDeviatingCells flags by its own rule, principal component pursuit by
what is not zero in S; residuals of the others are flagged beyond 3.5 of their feature's 85 % quantile over 1.44, the
scale that ours starts from. Missing entries are filled with medians for those that take none. DetectDeviatingCells
takes time by the square of the features; `--every 12` gives it every twelfth, and its row says so.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.baselines.alm import alm
from benchmarks.real_tables import GIVEN, tool_beside
from dcfpca.rpca.method import FloatArray

Found = tuple[NDArray[np.bool_], FloatArray]  # flags, scores
CUT = 3.5


def filled(M: FloatArray) -> FloatArray:
    return np.where(np.isnan(M), np.nanmedian(M, axis=1, keepdims=True), M)


def by_residual(M: FloatArray, L: FloatArray) -> Found:
    """Flags and scores from residuals in units of their feature's robust scale."""
    sizes = np.abs(np.where(np.isnan(M), L, M) - L)
    scale = np.quantile(sizes, 0.85, axis=1, keepdims=True) / 1.44
    z = sizes / np.where(scale > 0.0, scale, np.maximum(sizes.max(axis=1, keepdims=True), 1e-300))
    return z > CUT, z


def medians(M: FloatArray, _: int) -> Found:
    return by_residual(M, np.broadcast_to(np.nanmedian(M, axis=1, keepdims=True), M.shape))


def plain_pca(M: FloatArray, rank: int) -> Found:
    X = filled(M)
    mean = X.mean(axis=1, keepdims=True)
    P = np.linalg.svd(X - mean, full_matrices=False)[0][:, :rank]
    return by_residual(M, mean + P @ (P.T @ (X - mean)))


def pursuit(M: FloatArray, _: int) -> Found:
    """On features centred by their median and scaled by their MAD, for its one threshold is for all of them."""
    X = filled(M)
    centre = np.median(X, axis=1, keepdims=True)
    scale = np.median(np.abs(X - centre), axis=1, keepdims=True)
    scaled = (X - centre) / np.where(scale > 0.0, scale, 1.0)
    found = alm(scaled)
    sizes = np.abs(scaled - found.L)
    return np.abs(scaled - found.L) > 1e-6 * np.abs(scaled).max(), sizes


def detect_deviating_cells(M: FloatArray, _: int) -> Found:
    import pandas  # noqa: PLC0415 - comes with robpy
    from robpy.outliers.ddc import DDC  # type: ignore[import-not-found]  # noqa: PLC0415 - not a dependency

    try:
        fitted = DDC().fit(pandas.DataFrame(M.T))
    except ValueError:  # takes missing entries, but not where it leaves no feature out
        fitted = DDC().fit(pandas.DataFrame(filled(M).T))
    # Features that it leaves out score nothing.
    scores = np.nan_to_num(np.abs(np.asarray(fitted.standardized_residuals_)).T, nan=0.0)
    return np.asarray(fitted.cellwise_outliers_).T, scores


def robust_pca_of_hubert(M: FloatArray, rank: int) -> Found:
    from robpy.pca import ROBPCA  # type: ignore[import-not-found]  # noqa: PLC0415 - not a dependency

    X = filled(M).T
    fitted = ROBPCA(n_components=rank, random_seed=0).fit(X)
    scores = fitted.transform(X)
    return by_residual(M, (fitted.location_ + scores @ fitted.components_.T).T)


def peers() -> dict[str, Callable[[FloatArray, int], Found]]:
    known: dict[str, Callable[[FloatArray, int], Found]] = {
        "medians": medians,
        "plain PCA": plain_pca,
        "principal component pursuit (ALM)": pursuit,
    }
    if find_spec("robpy"):
        known |= {"DetectDeviatingCells (robpy)": detect_deviating_cells, "ROBPCA (robpy)": robust_pca_of_hubert}
    return known


def measure(
    injected: Any, name: str, who: str, method: Callable[[FloatArray, int], Found], every: int = 1
) -> dict[str, object]:
    _, sites, truth = injected.problem(name)
    M, hit, began = np.concatenate(sites, axis=1)[::every], np.concatenate(truth, axis=1)[::every], time.process_time()
    who = who if every == 1 else f"{who}, one feature in {every}"
    try:
        flags, scores = method(M, GIVEN[name])
    except Exception as error:  # whatever a peer raises is its answer
        return {"set": name, "who": who, "refused": f"{type(error).__name__}: {str(error)[:80]}"}
    seconds = time.process_time() - began
    return {"set": name, "who": who, "seconds": seconds, **injected.judge([flags], [scores], [hit], [M])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default=",".join(GIVEN))
    parser.add_argument("--who", default="", help="only methods with this in their name")
    parser.add_argument("--every", type=int, default=1, help="one feature in so many")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    injected, found = tool_beside(wanted.data), []
    with threadpool_limits(1):
        for name in wanted.sets.split(","):
            for who, method in ((who, method) for who, method in peers().items() if wanted.who in who):
                found.append(measure(injected, name, who, method, wanted.every))
                print(json.dumps(found[-1]), flush=True)
    if wanted.json is not None:
        measured = {(row["set"], row["who"]) for row in found}
        kept = json.loads(wanted.json.read_text()) if wanted.json.exists() else []
        found = [row for row in kept if (row["set"], row["who"]) not in measured] + found
        wanted.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
