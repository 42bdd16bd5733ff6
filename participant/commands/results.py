"""`dcfpca-participant results`: lists finished runs, and reports on one from the site's data and its result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcfpca.errors import BadInput
from dcfpca.report.sample_cards import MOST_CARDS
from dcfpca.report.site import site_report
from dcfpca.report.site_figures import (
    Components,
    FeatureFigures,
    FloatArray,
    ListedEntry,
    OddSample,
    Pictures,
    SiteFigures,
)
from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.refinement.closing_plan import FitEnding
from dcfpca.rpca.thresholds import NORMAL_MEDIAN
from dcfpca.text.console import add_row, result, say, show, table
from participant.config import Config
from participant.data.facts import measure, without_empty_samples
from participant.data.matrix import Matrix, select_features
from participant.data.readers import open_matrix
from participant.findings.decisions import Decision, Place
from participant.findings.worklist import Finding, aside_sentence, matching, read_worklist
from participant.results.block_files import SCORES
from participant.results.flag_tables import significant
from participant.results.scoring_model import ScoringModel, load_scoring_model

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


_BLOCK_BYTES = 8 << 20
_NOISE_COLUMNS = 4096


def build_report(config: Config, manifest: dict[str, Any], image: str = "", scored: Path | None = None) -> str:
    """The HTML of one finished run at this site, or of what `transform` wrote to `scored`; `config` has its data."""
    written = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return site_report(manifest, measure_result(config, manifest, image, scored), written)


def measure_result(
    config: Config, manifest: dict[str, Any], image: str = "", scored: Path | None = None
) -> SiteFigures:
    """Read the data and the result of a run; of the data the features of the run, and samples that have any of them.

    Raises BadInput when the data has another shape than the result, or `image` another than the features.
    """
    directory, used = scored or config.results.dir / manifest["run"], _data_of(config, manifest)
    L: FloatArray = np.load(directory / "L.npy", mmap_mode="r", allow_pickle=False)
    S = sparse.csc_array(sparse.load_npz(directory / "S.npz"))
    data = used.columns
    if data.shape != L.shape or S.shape != L.shape:
        hint = "put the data back that the run was made with, or look at L.npy and S.npz directly"
        raise BadInput(f"the data is {_size(data.shape)} and the result {_size(L.shape)}", hint)
    scaled, rate = manifest["spec"].get("scaling", "none") != "none", float(manifest["spec"].get("flag_rate", 0.01))
    judge = load_scoring_model(config.results.dir, manifest["run"], scaled=scaled)
    noise = _noise(judge, used, L)
    (gaps, pictures), shape = _overview(used, L, noise), _image(image, L.shape[0])
    p_values, flagged = _p_values(directory, L.shape[1], rate)
    findings = read_worklist(directory)
    known = judge.plan.calibration if judge is not None else None
    return SiteFigures(
        rows=L.shape[0],
        columns=L.shape[1],
        missing=int(gaps.sum()),
        outliers=int(S.nnz),
        flagged_samples=int(flagged.sum()),
        flag_rate=rate if (directory / SCORES).exists() else None,
        features=_features(used, noise, S, gaps, _values(judge, L.shape[0]), shape),
        odd=_odd(used, L, S, noise, judge, p_values, flagged, {(one.sample, one.feature): one for one in findings}),
        listed=[
            ListedEntry(one.sample, one.feature, one.observed, one.expected, one.unusual, one.story) for one in findings
        ],
        aside=aside_sentence(findings),
        components=_components(directory, L.shape[0]),
        related=known is not None and known.whole,
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
    used: Matrix,
    noise: FloatArray,
    S: sparse.csc_array,
    gaps: FloatArray,
    values: FloatArray,
    image: tuple[int, int] | None,
) -> FeatureFigures:
    rows, columns = S.shape
    names = used.features or tuple(f"no. {row}" for row in range(rows))
    if image is not None:
        names = tuple(f"pixel {row // image[1]}, {row % image[1]}" for row in range(rows))
    flags = np.bincount(S.indices, minlength=rows).astype(float)
    return FeatureFigures(names, bool(used.features), noise, flags, gaps / columns, values)


def _data_of(config: Config, manifest: dict[str, Any]) -> Matrix:
    whole = open_matrix(config.data, config.state.dir / "spool")
    spec = manifest["spec"]
    may_lack = spec.get("missing_features") == "allow"
    chosen = select_features(whole, tuple(spec.get("features", ())), config.data.origin, may_lack=may_lack)
    return without_empty_samples(chosen, measure(chosen.columns, config.data.origin))


def _noise(model: ScoringModel | None, used: Matrix, L: FloatArray) -> FloatArray:
    """Each feature's noise in its own unit: the null's deviation, or where a run has none that of the residuals."""
    if model is not None:
        return np.maximum(model.deviation, np.finfo(float).tiny)
    count = min(L.shape[1], _NOISE_COLUMNS)
    M = used.columns.read(0, count)
    found = NORMAL_MEDIAN * np.nanmedian(np.abs(M - L[:, :count]), axis=1)
    spread = np.maximum(np.nanstd(M, axis=1), np.finfo(float).tiny)
    return np.where(found > 1e-9 * spread, found, spread)


def _values(judge: ScoringModel | None, rows: int) -> FloatArray:
    """How many values of each feature all sites have; zeros where nobody counted them."""
    known = judge.plan.calibration if judge is not None else None
    return known.entries if known is not None else np.zeros(rows)


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
    judge: ScoringModel | None,
    p_values: FloatArray,
    flagged: np.ndarray[Any, np.dtype[np.bool_]],
    findings: Mapping[tuple[str, str], Finding],
) -> list[OddSample]:
    """Samples that are flagged or have a flagged entry: the least p-value first, then the largest |z| of an entry."""
    places = np.repeat(np.arange(S.shape[1]), np.diff(S.indptr))
    largest = np.zeros(S.shape[1])
    np.maximum.at(largest, places, np.abs(S.data) / noise[S.indices])
    order = np.lexsort((-largest, np.nan_to_num(p_values, nan=1.0)))
    chosen = [int(column) for column in order if flagged[column] or largest[column] > 0][:MOST_CARDS]
    samples = []
    for column in chosen:
        observed, expected = used.columns.read(column, column + 1)[:, 0], np.array(L[:, column], dtype=np.float64)
        z, exceeded_by = (observed - expected) / noise, np.full(observed.size, np.nan)
        if judge is not None and judge.plan.ending is FitEnding.REFINED:
            # What is expected of an entry is what the other entries of the sample say, and not L, which it bends.
            scored = judge.transform(observed[:, None]).scored
            expected, z, exceeded_by = scored.others.value[:, 0], scored.z[:, 0], scored.exceeded_by[:, 0]
        own = S.indices[S.indptr[column] : S.indptr[column + 1]]
        identifier, known = used.id_at(column), used.features or tuple(map(str, range(len(z))))
        # A flagged entry has the figures that the run found: `transform` judges a sample as one that had no part in it.
        found = {int(row): findings[identifier, known[row]] for row in own if (identifier, known[row]) in findings}
        for row, one in found.items():
            expected[row], z[row], exceeded_by[row] = one.expected, one.z, one.exceeded_by
        rows = tuple(int(row) for row in own[np.argsort(-np.abs(z[own]), kind="stable")])
        name = identifier if used.ids or used.lines else f"sample {identifier}"
        told = {row: one.story for row, one in found.items()}
        samples.append(OddSample(name, bool(flagged[column]), observed, expected, z, exceeded_by, rows, told))
    return samples


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


def show_worst(folder: Path, decided: Mapping[Place, Decision]) -> None:
    """The findings of a result that are most unusual; not those that were confirmed as real."""
    findings = matching(read_worklist(folder, decided))
    if not findings:
        return
    made = table("sample", "feature", "#found", "#expected", "unusual for", "what may have happened", "decided")
    for one in findings[:MOST_SHOWN]:
        figures = ["" if math.isnan(x) else f"{x:.{digits}g}" for x, digits in ((one.observed, 6), (one.expected, 3))]
        verdict = one.decision.verdict if one.decision else ""
        told = one.story or one.said
        add_row(made, one.sample, one.feature or "as a whole", *figures, one.unusual_for, told, verdict)
    show(made)
    if apart := aside_sentence(findings):
        result(apart)
    if len(findings) > MOST_SHOWN:
        result(f"and {len(findings) - MOST_SHOWN} more: --report writes all, `dcfpca-participant console` decides them")


MOST_SHOWN = 10


def show_results(directory: Path, manifests: Sequence[dict[str, Any]], decided: Mapping[Place, Decision]) -> None:
    """What `results` prints: of the latest run the verdict and what is most unusual, then every run with its files."""
    if not manifests:
        say(f"there are no results in {directory} yet")
        return
    last = manifests[-1]
    result(f"run {last['run']}: {last.get('verdict', {}).get('sentence') or last['outcome']}")
    for note in last.get("verdict", {}).get("notes", []):
        result(note)
    show_worst(directory / last["run"], decided)
    made = table("run", "method", "#rounds", "#rank", "outcome", "files")
    for found in manifests:
        where = f"{directory / found['run']}/{{{','.join(found['files'])}}}"
        add_row(made, found["run"], found["method"], str(found["rounds"]), str(found["rank"]), found["outcome"], where)
    show(made)
