"""Heat maps of a site's matrix, legible with a dozen rows and with thousands."""

from __future__ import annotations

from html import escape

import numpy as np

from dcfpca.report import png
from dcfpca.report.page import paragraph, section
from dcfpca.report.site_figures import FloatArray, SiteFigures

MOST_LABELS = 40
TALL, SHORT = 420, 14  # pixels: of a picture of many rows, and of one row of a few

_MIDDLE = 6.0
"""Noise at which deviations reach full colour."""


def heat_map_section(found: SiteFigures) -> str:
    """Deviations, the data itself, and where it has gaps."""
    pictures = found.pictures
    told = "Measurements downwards, samples to the right, in the order of the data."
    tiled = pictures.data.shape != (found.rows, found.columns)
    tiles = " Neighbours share a pixel: their largest deviation, mean, or share of gaps." if tiled else ""

    parts = [
        _picture("Off by, in noise (blue below, red above what is expected)", pictures.deviation, _MIDDLE, found),
        _picture("The data, about its centre, in noise", pictures.data, _reach(pictures.data), found),
    ]
    if found.missing:
        parts.append(_picture("Missing (red)", pictures.missing, 1.0, found))
    return section("The whole matrix", paragraph(told + tiles, "note"), *parts)


def _picture(title: str, values: FloatArray, reach: float, found: SiteFigures) -> str:
    source = png.data_uri(png.levels(values, reach))
    rows = values.shape[0]
    high = SHORT * rows if rows <= MOST_LABELS else TALL
    labels = _labels(found) if rows == found.rows <= MOST_LABELS else ""
    ends = f'<div class="ends"><span>{-reach:.3g}</span><span>{reach:.3g}</span></div>'
    return (
        f'<figure class="map"><figcaption>{escape(title)}</figcaption><div class="labelled">{labels}'
        f'<img alt="{escape(title)}" src="{source}" height="{high}"></div><div class="ramp"></div>{ends}</figure>'
    )


def _labels(found: SiteFigures) -> str:
    lines = "".join(f"<li>{escape(name)}</li>" for name in found.features.names)
    return f'<ul class="rows">{lines}</ul>'


def _reach(picture: FloatArray) -> float:
    """The 99 % quantile of the magnitudes, so that a few large entries do not hide the rest."""
    sizes = np.abs(picture[np.isfinite(picture)])
    sizes = sizes[sizes > 0]
    return float(np.quantile(sizes, 0.99)) if sizes.size else 1.0
