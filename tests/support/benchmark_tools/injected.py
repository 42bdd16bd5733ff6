"""A small `tools/injected.py`, as `benchmarks.real_tables`, `site_gain` and `table_peers` find it beside their data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]


def problem(name: str, share: float = 0.05, seed: int = 1) -> tuple[list[str], list[Floats], list[Marks]]:
    """Three sites with 40 columns of twelve features, and errors of eight deviations in this share of the entries."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(12, 2))
    clean = [mixing @ rng.normal(size=(2, 40)) + 0.3 * rng.normal(size=(12, 40)) for _ in range(3)]
    truth = [rng.random(own.shape) < share for own in clean]
    return list("abc"), [own + 8.0 * hit for own, hit in zip(clean, truth, strict=True)], truth


def judge(flags: list[Marks], scores: list[Floats], truth: list[Marks], sites: list[Floats]) -> dict[str, float]:
    flag, score, hit = (np.concatenate([one.ravel() for one in group]) for group in (flags, scores, truth))
    precision, recall = float(hit[flag].mean()) if flag.any() else 0.0, float(flag[hit].mean())
    above = float((score[hit][:, None] > score[~hit]).mean())
    figures = {"precision": precision, "recall": recall, "f1": 2 * precision * recall / max(precision + recall, 1e-12)}
    return figures | {"auc": above, "flagged": float(flag.mean()), "worst_row": float(flag.mean())}
