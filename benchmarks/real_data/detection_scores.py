"""How well scores separate outliers from other entries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray


def best_f1(scores: FloatArray, labels: NDArray[np.bool_]) -> float:
    """The largest F1 that any threshold on the scores reaches, with `labels` true for the positives."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(labels[order])
    flagged = np.arange(1, scores.size + 1)
    # Equal scores cannot be told apart by a threshold, so only the last of each run of equals counts.
    last = np.append(np.diff(scores[order]) != 0, True)
    f1 = 2 * hits / (flagged + max(int(labels.sum()), 1))
    return float(f1[last].max())


def average_precision(scores: FloatArray, labels: NDArray[np.bool_]) -> float:
    """The mean over all positives of the precision at the threshold that just flags them (area under the PR curve)."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(labels[order])
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    precision = hits[last] / (last + 1)
    gained = np.diff(hits[last], prepend=0)
    return float(precision @ gained / max(int(hits[-1]), 1))


def area_under_curve(scores: FloatArray, labels: NDArray[np.bool_]) -> float:
    """The chance that a positive outscores a negative, ties counting half (area under the ROC curve)."""
    positives = int(labels.sum())
    negatives = labels.size - positives
    if not positives or not negatives:
        return float("nan")
    # Equal scores share the mean of their ranks. By hand, because scipy.stats takes a second to import.
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return float((ranks[labels].sum() - positives * (positives + 1) / 2) / (positives * negatives))
