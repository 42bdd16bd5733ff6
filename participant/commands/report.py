"""`dcfpca-participant results --report`: the report of one run, from the site's data and result, in column blocks."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dcfpca.errors import BadInput
from dcfpca.report.sample_cards import MOST_LISTED
from dcfpca.report.site import site_report
from dcfpca.report.site_figures import Components, FeatureFigures, FloatArray, OddSample, Pictures, SiteFigures
from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.thresholds import NORMAL_MEDIAN
from participant.commands.report_tiles import TiledPictures
from participant.config import Config
from participant.data import Matrix, measure, open_matrix, select_features, without_empty_samples
from participant.results import SCORES, load_scoring_model
from participant.results.flag_tables import significant

_BLOCK_BYTES = 8 << 20
_NOISE_COLUMNS = 4096


def build_report(config: Config, manifest: dict[str, Any], image: str = "") -> str:
    """The HTML of one finished run at this site."""
    written = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return site_report(manifest, measure_result(config, manifest, image), written)


def measure_result(config: Config, manifest: dict[str, Any], image: str = "") -> SiteFigures:
    """Read the data and the result of a run; of the data the features of the run, and samples that have any of them.

    Raises BadInput when the data has another shape than the result, or `image` another than the features.
    """
    directory, used = config.results.dir / manifest["run"], _data_of(config, manifest)
    L: FloatArray = np.load(directory / "L.npy", mmap_mode="r", allow_pickle=False)
    S = sparse.csc_array(sparse.load_npz(directory / "S.npz"))
    data = used.columns
    if data.shape != L.shape or S.shape != L.shape:
        hint = "put the data back that the run was made with, or look at L.npy and S.npz directly"
        raise BadInput(f"the data is {_size(data.shape)} and the result {_size(L.shape)}", hint)
    noise, rate = _noise(config, manifest, used, L), float(manifest["spec"].get("flag_rate", 0.01))
    (gaps, pictures), shape = _overview(used, L, noise), _image(image, L.shape[0])
    p_values, flagged = _p_values(directory, L.shape[1], rate)
    return SiteFigures(
        rows=L.shape[0],
        columns=L.shape[1],
        missing=int(gaps.sum()),
        outliers=int(S.nnz),
        flagged_samples=int(flagged.sum()),
        flag_rate=rate if (directory / SCORES).exists() else None,
        features=_features(used, noise, S, gaps, shape),
        odd=_odd(used, L, S, noise, p_values, flagged),
        components=_components(directory, L.shape[0]),
        pictures=pictures,
        image=shape,
    )


def _overview(used: Matrix, L: FloatArray, noise: FloatArray) -> tuple[FloatArray, Pictures]:
    """Gaps by feature, and the pictures, in one pass over the data."""
    rows, columns = L.shape
    tiles, gaps, unit = TiledPictures(rows, columns), np.zeros(rows), noise[:, None]
    head = used.columns.read(0, min(columns, _NOISE_COLUMNS))
    centre = np.array([np.nanmedian(row) if np.isfinite(row).any() else 0.0 for row in head])[:, None]
    for start, stop in blocks(used.columns, _BLOCK_BYTES):
        M = used.columns.read(start, stop)
        gaps += np.isnan(M).sum(axis=1)
        tiles.add(start, (M - centre) / unit, (M - L[:, start:stop]) / unit)
    return gaps, tiles.pictures()


def _features(
    used: Matrix, noise: FloatArray, S: sparse.csc_array, gaps: FloatArray, image: tuple[int, int] | None
) -> FeatureFigures:
    rows, columns = S.shape
    names = used.features or tuple(f"no. {row}" for row in range(rows))
    if image is not None:
        names = tuple(f"pixel {row // image[1]}, {row % image[1]}" for row in range(rows))
    flags = np.bincount(S.indices, minlength=rows).astype(float)
    return FeatureFigures(names, bool(used.features), noise, flags, gaps / columns)


def _data_of(config: Config, manifest: dict[str, Any]) -> Matrix:
    whole = open_matrix(config.data, config.state.dir / "spool")
    spec = manifest["spec"]
    may_lack = spec.get("missing_features") == "allow"
    chosen = select_features(whole, tuple(spec.get("features", ())), config.data.origin, may_lack=may_lack)
    return without_empty_samples(chosen, measure(chosen.columns, config.data.origin))


def _noise(config: Config, manifest: dict[str, Any], used: Matrix, L: FloatArray) -> FloatArray:
    """Each feature's noise in its own unit: the null's deviation, or where a run has none that of the residuals."""
    scaled = manifest["spec"].get("scaling") == "robust"
    model = load_scoring_model(config.results.dir, manifest["run"], scaled=scaled)
    if model is not None:
        return np.maximum(model.deviation, np.finfo(float).tiny)
    count = min(L.shape[1], _NOISE_COLUMNS)
    M = used.columns.read(0, count)
    found = NORMAL_MEDIAN * np.nanmedian(np.abs(M - L[:, :count]), axis=1)
    spread = np.maximum(np.nanstd(M, axis=1), np.finfo(float).tiny)
    return np.where(found > 1e-9 * spread, found, spread)


def _p_values(directory: Path, columns: int, rate: float) -> tuple[FloatArray, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Of the samples, and which are flagged; NaN and none for a run without a null."""
    if not (directory / SCORES).exists():
        return np.full(columns, np.nan), np.zeros(columns, dtype=bool)
    with np.load(directory / SCORES, allow_pickle=False) as kept:
        p_values = np.asarray(kept["p_value"])
    return p_values, significant(p_values, rate)


def _odd(
    used: Matrix,
    L: FloatArray,
    S: sparse.csc_array,
    noise: FloatArray,
    p_values: FloatArray,
    flagged: np.ndarray[Any, np.dtype[np.bool_]],
) -> list[OddSample]:
    """Samples that are flagged or have a flagged entry: the least p-value first, then the largest |z| of an entry."""
    places = np.repeat(np.arange(S.shape[1]), np.diff(S.indptr))
    largest = np.zeros(S.shape[1])
    np.maximum.at(largest, places, np.abs(S.data) / noise[S.indices])
    order = np.lexsort((-largest, np.nan_to_num(p_values, nan=1.0)))
    chosen = [int(column) for column in order if flagged[column] or largest[column] > 0][:MOST_LISTED]
    return [_sample(used, L, S, noise, column, float(p_values[column]), bool(flagged[column])) for column in chosen]


def _sample(
    used: Matrix, L: FloatArray, S: sparse.csc_array, noise: FloatArray, column: int, p_value: float, flagged: bool
) -> OddSample:
    observed, expected = used.columns.read(column, column + 1)[:, 0], np.asarray(L[:, column], dtype=np.float64)
    z = (observed - expected) / noise
    own = S.indices[S.indptr[column] : S.indptr[column + 1]]
    rows = tuple(int(row) for row in own[np.argsort(-np.abs(z[own]), kind="stable")])
    name = used.id_at(column) if used.ids else f"sample {used.id_at(column)}"
    return OddSample(name, p_value, flagged, observed, expected, z, rows)


def _components(directory: Path, rows: int) -> Components:
    if not (directory / "U.npy").exists():
        return Components(np.zeros((rows, 0)), np.zeros(0))
    U, V = np.load(directory / "U.npy", allow_pickle=False), np.load(directory / "V.npy", allow_pickle=False)
    lengths = np.linalg.norm(U, axis=0)
    sizes = np.var(V, axis=0) * lengths**2
    order = np.argsort(-sizes, kind="stable")
    unit = U / np.maximum(lengths, np.finfo(float).tiny)
    return Components(unit[:, order], sizes[order] / max(float(sizes.sum()), np.finfo(float).tiny))


def _image(text: str, rows: int) -> tuple[int, int] | None:
    if not text:
        return None
    height, _, width = text.partition("x")
    if not (height.isdigit() and width.isdigit()) or int(height) * int(width) != rows:
        hint = f"give height x width, such as 60x80, whose product is the {rows} features of the run"
        raise BadInput(f"--image {text} is not the shape of the features", hint)
    return int(height), int(width)


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} × {shape[1]}"
