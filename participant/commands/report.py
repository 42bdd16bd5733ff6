"""`dcfpca-participant results --report`: figures of one run, from the site's data and result, in column blocks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dcfpca.errors import BadInput
from dcfpca.report.site import Anomaly, FloatArray, SiteFigures, site_report
from dcfpca.rpca.column_blocks import blocks
from participant.config import Config
from participant.data import Matrix, measure, open_matrix, select_features, without_empty_samples

LARGEST_PICTURE = 400
MOST_ANOMALIES = 20
_BLOCK_BYTES = 8 << 20


def build_report(config: Config, manifest: dict[str, Any]) -> str:
    """The HTML of one finished run at this site."""
    written = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    features = tuple(manifest["spec"].get("features", ()))
    return site_report(manifest, measure_result(config, config.results.dir / manifest["run"], features), written)


def measure_result(config: Config, directory: Path, features: tuple[str, ...] = ()) -> SiteFigures:
    """Read M, L and S once each; of M the features of the run, and the samples that have any of them.

    Raises BadInput when the data has another shape than the result.
    """
    whole = open_matrix(config.data, config.state.dir / "spool")
    chosen = select_features(whole, features, config.data.origin)
    used = without_empty_samples(chosen, measure(chosen.columns, config.data.origin))
    data = used.columns
    L: FloatArray = np.load(directory / "L.npy", mmap_mode="r", allow_pickle=False)
    S = sparse.csc_array(sparse.load_npz(directory / "S.npz"))
    if data.shape != L.shape or S.shape != L.shape:
        hint = "put the data back that the run was made with, or look at L.npy and S.npz directly"
        raise BadInput(f"the data is {_size(data.shape)} and the result {_size(L.shape)}", hint)
    tiles = Tiles.over(*data.shape)
    M_sum, L_sum, seen, gaps_by_row = tiles.zeros(), tiles.zeros(), tiles.zeros(), np.zeros(data.shape[0])
    gaps_by_column = np.zeros(data.shape[1])
    for start, stop in blocks(data, _BLOCK_BYTES):
        M = data.read(start, stop)
        gaps = np.isnan(M)
        gaps_by_row += gaps.sum(axis=1)
        gaps_by_column[start:stop] = gaps.sum(axis=0)
        tiles.add(M_sum, np.where(gaps, 0.0, M), start)
        tiles.add(L_sum, np.asarray(L[:, start:stop], dtype=float), start)
        tiles.add(seen, (~gaps).astype(float), start)
    with np.errstate(invalid="ignore", divide="ignore"):
        M_mean = M_sum / seen
    found = _figures(S, tiles, (M_mean, L_sum / tiles.sizes()), (gaps_by_row, gaps_by_column))
    return replace(found, anomalies=[_named(one, used) for one in found.anomalies])


def _named(one: Anomaly, matrix: Matrix) -> Anomaly:
    feature = matrix.features[one.row] if matrix.features else ""
    return replace(one, sample=matrix.id_at(one.column), feature=feature)


def _figures(
    S: sparse.csc_array, tiles: Tiles, pictures: tuple[FloatArray, FloatArray], gaps: tuple[FloatArray, FloatArray]
) -> SiteFigures:
    rows, columns = S.shape
    by_row = np.bincount(S.indices, minlength=rows).astype(float)
    by_column = np.diff(S.indptr).astype(float)
    return SiteFigures(
        rows=rows,
        columns=columns,
        missing=int(gaps[0].sum()),
        outliers=int(S.nnz),
        row_shares=by_row / np.maximum(columns - gaps[0], 1),
        column_shares=by_column / np.maximum(rows - gaps[1], 1),
        anomalies=_anomalies(S, by_column / np.maximum(rows - gaps[1], 1)),
        M=pictures[0],
        L=pictures[1],
        S=tiles.largest(S),
    )


def _anomalies(S: sparse.csc_array, shares: FloatArray) -> list[Anomaly]:
    """The columns of S with the largest norms."""
    lengths = np.sqrt(np.asarray(S.multiply(S).sum(axis=0)).ravel())
    longest = np.argsort(-lengths, kind="stable")[:MOST_ANOMALIES]
    return [_anomaly(S, int(column), float(shares[column])) for column in longest if lengths[column] > 0]


def _anomaly(S: sparse.csc_array, column: int, share: float) -> Anomaly:
    begin, end = S.indptr[column], S.indptr[column + 1]
    place = begin + int(np.argmax(np.abs(S.data[begin:end])))
    return Anomaly(column, int(end - begin), share, float(S.data[place]), int(S.indices[place]))


class Tiles:
    """A matrix cut into at most LARGEST_PICTURE tiles each way."""

    def __init__(self, row_edges: np.ndarray[Any, Any], column_edges: np.ndarray[Any, Any]) -> None:
        self._rows, self._columns = row_edges, column_edges

    @staticmethod
    def over(rows: int, columns: int) -> Tiles:
        """Tiles of a rows × columns matrix."""
        edges = [np.linspace(0, n, min(n, LARGEST_PICTURE) + 1).round().astype(int) for n in (rows, columns)]
        return Tiles(edges[0], edges[1])

    def zeros(self) -> FloatArray:
        """A picture with one pixel per tile."""
        return np.zeros((len(self._rows) - 1, len(self._columns) - 1))

    def sizes(self) -> FloatArray:
        """Entries in each tile."""
        return np.outer(np.diff(self._rows), np.diff(self._columns)).astype(float)

    def add(self, picture: FloatArray, block: FloatArray, start: int) -> None:
        """Add the entries of columns start … to the sums of their tiles."""
        down = np.add.reduceat(block, self._rows[:-1], axis=0)
        tile = np.searchsorted(self._columns, np.arange(start, start + block.shape[1]), side="right") - 1
        np.add.at(picture.T, tile, down.T)

    def largest(self, S: sparse.csc_array) -> FloatArray:
        """For each tile, the entry of S with the largest magnitude."""
        picture = self.zeros()
        row = np.searchsorted(self._rows, S.indices, side="right") - 1
        column = np.searchsorted(self._columns, np.repeat(np.arange(S.shape[1]), np.diff(S.indptr)), side="right") - 1
        order = np.argsort(np.abs(S.data), kind="stable")
        picture[row[order], column[order]] = S.data[order]
        return picture


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} × {shape[1]}"
