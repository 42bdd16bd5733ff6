"""The data sets, divided into sites, with the labels to judge by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.column_blocks import equal_counts
from dcfpca.rpca.method import FloatArray
from dcfpca.spec import RunSpec, parse_spec

HIGHWAY_SITES, HIGHWAY_RANK, ASD_SITES, ASD_RANK = 6, 1, 12, 3
MOVING, BACKGROUND = 255, (0, 50)


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Sites' matrices, and which of the scores of all of them together should be high.

    A score is made for every entry, or for every column (`by_column`); `judged` marks those with a label.
    """

    name: str
    sites: tuple[FloatArray, ...]
    rank: int
    labels: NDArray[np.bool_]
    judged: NDArray[np.bool_]
    by_column: bool

    @property
    def pooled(self) -> FloatArray:
        return np.concatenate(self.sites, axis=1)

    def spec(self) -> RunSpec:
        """The operator's whole say: the rank."""
        return parse_spec({"rows": self.sites[0].shape[0], "rank": self.rank})

    def scores(self, L: FloatArray) -> FloatArray:
        """|M − L|, or its sum over each column."""
        residual = np.abs(self.pooled - L)
        return np.asarray(residual.sum(axis=0) if self.by_column else residual)


def highway(data: Path) -> Dataset:
    """Pixels × frames in [0, 1], 4800 × 600 as published, six consecutive periods as sites."""
    with np.load(data / "highway" / "highway_60x80.npz", allow_pickle=False) as file:
        M, truth = (file[name].reshape(-1, file[name].shape[-1]) for name in ("frames", "gt"))
    ends = np.cumsum(equal_counts(M.shape[1], HIGHWAY_SITES))
    judged = (truth == MOVING) | np.isin(truth, BACKGROUND)
    sites = tuple(np.split(M / 255.0, ends[:-1], axis=1))
    return Dataset("highway", sites, HIGHWAY_RANK, truth == MOVING, judged, by_column=False)


def asd(data: Path) -> Dataset:
    """19 metrics × 4320 steps of each of twelve servers."""
    files = [np.load(data / "asd" / f"omi-{number}.npz", allow_pickle=False) for number in range(1, ASD_SITES + 1)]
    labels = np.concatenate([file["y"] for file in files]).astype(bool)
    sites = tuple(file["X"].astype(np.float64) for file in files)
    return Dataset("asd", sites, ASD_RANK, labels, np.ones_like(labels), by_column=True)
