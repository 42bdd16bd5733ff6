"""A matrix reduced to at most so many tiles each way, for pictures, block of columns by block of columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dcfpca.report.site_figures import FloatArray, Pictures

LARGEST_PICTURE = 400


class TiledPictures:
    """The mean of the data, the largest deviation and the share of gaps in each tile."""

    def __init__(self, rows: int, columns: int) -> None:
        edges = [np.linspace(0, n, min(n, LARGEST_PICTURE) + 1).round().astype(int) for n in (rows, columns)]
        self._rows, self._columns = edges
        shape = (len(self._rows) - 1, len(self._columns) - 1)
        self._sum, self._seen, self._count = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self._high, self._low = np.zeros(shape), np.zeros(shape)

    def add(self, start: int, data: FloatArray, deviation: FloatArray) -> None:
        """The columns from `start`; NaN is a gap."""
        tile = np.searchsorted(self._columns, np.arange(start, start + data.shape[1]), side="right") - 1
        there = ~np.isnan(data)
        self._accumulate(self._sum, np.where(there, data, 0.0), tile)
        self._accumulate(self._seen, there.astype(float), tile)
        self._accumulate(self._count, np.ones_like(data), tile)
        off = np.nan_to_num(deviation)
        np.maximum.at(self._high.T, tile, np.maximum.reduceat(off, self._rows[:-1], axis=0).T)
        np.minimum.at(self._low.T, tile, np.minimum.reduceat(off, self._rows[:-1], axis=0).T)

    def _accumulate(self, picture: FloatArray, values: FloatArray, tile: NDArray[np.intp]) -> None:
        np.add.at(picture.T, tile, np.add.reduceat(values, self._rows[:-1], axis=0).T)

    def pictures(self) -> Pictures:
        """One number per tile; NaN where nothing is observed."""
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = self._sum / self._seen
        largest = np.where(self._high >= -self._low, self._high, self._low)
        missing = 1.0 - self._seen / np.maximum(self._count, 1.0)
        return Pictures(mean, np.where(self._seen > 0, largest, np.nan), missing)
