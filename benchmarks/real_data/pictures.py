"""What the real data gave, drawn. Needs matplotlib (`pip install 'dcfpca[bench]'`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray

COLOURS = ("#0072B2", "#56B4E9", "#009E73", "#D55E00", "#999999", "#E69F00")
STYLES = ("-", "--", "-", "-", "-", "-")
FRAME, FRAMES = (60, 80), (40, 250, 470)
POINTS = 400


def draw_curves(scores: Mapping[str, FloatArray], labels: NDArray[np.bool_], stem: Path) -> None:
    """ROC on the left, precision over recall on the right."""
    picture, (roc, precision) = _sheet(1, 2, (9.0, 3.8))
    for (who, own), colour, style in zip(scores.items(), COLOURS, STYLES, strict=False):
        hits = np.cumsum(labels[np.argsort(-own, kind="stable")])
        flagged = np.arange(1, hits.size + 1)
        at = np.unique(np.geomspace(1, hits.size, POINTS).astype(int)) - 1
        false_share = (flagged - hits)[at] / (labels.size - hits[-1])
        true_share = hits[at] / hits[-1]
        roc.plot(false_share, true_share, style, color=colour, label=who, lw=1.4)
        precision.plot(true_share, (hits / flagged)[at], style, color=colour, lw=1.4)
    roc.plot([0, 1], [0, 1], color="0.8", lw=1)
    roc.set(xlabel="share of the normal flagged", ylabel="share of the labelled flagged")
    precision.set(xlabel="recall", ylabel="precision", ylim=(0, 1.02))
    roc.legend(fontsize=7, loc="lower right")
    _save(picture, stem)


def draw_sites(areas: Any, stem: Path) -> None:
    """The area under each site's ROC curve, federated and alone."""
    picture, place = _sheet(1, 1, (7.0, 3.2))
    numbers = np.array([row["site"] for row in areas])
    for shift, who, colour in ((-0.2, "federated", COLOURS[0]), (0.2, "each site alone", COLOURS[2])):
        place.bar(numbers + shift, [row[who] for row in areas], 0.38, color=colour, label=who)
    place.axhline(0.5, color="0.4", lw=1)
    place.set(xlabel="site", ylabel="area under the ROC curve", ylim=(0.4, 1.0), xticks=numbers)
    place.legend(fontsize=7)
    _save(picture, stem)


def draw_frames(M: FloatArray, L: FloatArray, moving: NDArray[np.bool_], stem: Path) -> None:
    """Some frames: as filmed, background L, foreground |M − L|, and what people marked as moving."""
    titles = ("M", "L", "|M − L|", "labelled")
    picture, grid = _sheet(len(FRAMES), len(titles), (9.0, 5.4))
    for row, frame in zip(grid, FRAMES, strict=True):
        parts = (M[:, frame], L[:, frame], np.abs(M - L)[:, frame], moving[:, frame])
        for place, part, title, top in zip(row, parts, titles, (1.0, 1.0, 0.5, 1.0), strict=True):
            place.imshow(part.reshape(FRAME), cmap="gray", vmin=0.0, vmax=top)
            place.set_title(f"{title}, frame {frame}", fontsize=8)
            place.set_axis_off()
    _save(picture, stem)


def _sheet(rows: int, columns: int, inches: tuple[float, float]) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 — an extra, asked for only here
    from matplotlib.figure import Figure  # noqa: PLC0415

    picture = Figure(figsize=inches, layout="constrained")
    FigureCanvasAgg(picture)
    return picture, picture.subplots(rows, columns)


def _save(picture: Any, stem: Path) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(stem.with_suffix(".png"), dpi=110, metadata={"Software": None})
