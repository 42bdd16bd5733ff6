"""A small `tools/cells.py`, as `benchmarks.cells`, `cell_peers` and `samples` find it beside their data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]
TABLES = Path(__file__).parent.parent / "data" / "tables"


def load(name: str) -> tuple[Floats, NDArray[np.int_]]:
    with np.load(TABLES / f"{name}.npz", allow_pickle=False) as file:
        return file["X"], file["site"]


def scales(X: Floats) -> tuple[Floats, Floats]:
    return X.std(axis=0), X.std(axis=0)


def spoil(X: Floats, site: NDArray[np.int_], way: str, rate: float, seed: int) -> tuple[Floats, Marks, Marks]:
    """Every kind of error is a shift by eight deviations here."""
    wrong = np.random.default_rng(seed).random(X.shape) < rate
    return np.where(wrong, X + 8.0 * X.std(axis=0), X), wrong, np.zeros(X.shape, bool)


def without_errors(X: Floats, seed: int) -> Floats:
    return np.random.default_rng(seed).permutation(X)


def judge(flags: Marks, wrong: Marks, ignore: Marks) -> dict[str, float]:
    hits, said, there = int((flags & wrong).sum()), int(flags.sum()), int(wrong.sum())
    figures = {"f1": 2 * hits / max(said + there, 1), "precision": hits / max(said, 1), "recall": hits / max(there, 1)}
    return figures | {"flagged": float(flags.mean()), "samples": float(flags.any(axis=1).mean())}
