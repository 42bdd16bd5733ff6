"""The report for a site alone: its own outliers, and heat maps of its own matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.report import png, svg
from dcfpca.report.page import figure, figures, folded, page, paragraph, section, table
from dcfpca.report.svg import Series, Titles

FloatArray = NDArray[np.float64]
MOST_POINTS = 360
"""Longer profiles are reduced to the largest value of each interval, so that no peak is lost."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One of the most anomalous columns."""

    column: int
    outliers: int
    share: float
    largest: float
    row: int
    sample: str = ""
    feature: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class SiteFigures:
    """The figures of a site's report. M, L and S are heat maps: one number per tile of the matrix."""

    rows: int
    columns: int
    missing: int
    outliers: int
    row_shares: FloatArray
    column_shares: FloatArray
    anomalies: Sequence[Anomaly]
    M: FloatArray
    L: FloatArray
    S: FloatArray


def site_report(manifest: Mapping[str, Any], found: SiteFigures, written: str) -> str:
    """The HTML of a site's report."""
    name = manifest.get("label") or manifest["run"]
    parts = [
        _head(manifest, found, name, written),
        _pictures(found),
        _profile("Outliers per row", "row", found.row_shares),
        _profile("Outliers per column", "column", found.column_shares),
        _anomalies(found.anomalies),
        _files(manifest),
    ]
    return page(f"{name} at {manifest['participant']}", parts)


def _head(manifest: Mapping[str, Any], found: SiteFigures, name: str, written: str) -> str:
    observed, verdict = max(found.rows * found.columns - found.missing, 1), manifest.get("verdict", {})
    numbers = [
        ("rank", str(manifest["rank"])),
        ("rounds", str(manifest["rounds"])),
        ("rows", str(found.rows)),
        ("own columns", str(found.columns)),
        ("outliers", str(found.outliers)),
        ("share of outliers", f"{found.outliers / observed:.2%}"),
        ("missing entries", str(found.missing)),
        *((key.replace("_", " "), f"{value:.2g}") for key, value in manifest.get("certificate", {}).items()),
    ]
    shown = [pair for pair in numbers if pair[0] not in ("outlier share", "missing share")]
    return "\n".join(
        [
            f"<header><h1>{escape(name)} at {escape(manifest['participant'])}</h1>",
            paragraph(str(verdict.get("sentence", manifest["outcome"])), "lead"),
            *(paragraph(str(note), "note") for note in verdict.get("notes", [])),
            paragraph(f"Run {manifest['run']}, method {manifest['method']}. Written {written}.", "note"),
            paragraph("For this site only: nothing in this file has left it.", "note"),
            figures(shown),
            "</header>",
        ]
    )


def _pictures(found: SiteFigures) -> str:
    reach = _reach(found.L)
    beyond = _reach(found.S)
    pictures = [
        _picture("M, the data", found.M, reach),
        _picture("L, the low-rank part", found.L, reach),
        _picture("S, the outliers", found.S, beyond),
    ]
    caption = paragraph(
        "Rows downwards, columns to the right; each pixel is the mean of M and L, and the largest entry of S, over its "
        "tile. Blue is negative, red positive, grey missing.",
        "note",
    )
    return section("M = L + S", f'<div class="pictures">{"".join(pictures)}</div>', caption)


def _picture(title: str, values: FloatArray, reach: float) -> str:
    source = png.data_uri(png.levels(values, reach))
    return (
        f'<figure><img src="{source}" alt="{escape(title)}" width="{values.shape[1]}" height="{values.shape[0]}">'
        f'<div class="ramp"></div><div class="ends"><span>{-reach:.3g}</span><span>{reach:.3g}</span></div>'
        f"<figcaption>{escape(title)}</figcaption></figure>"
    )


def _reach(picture: FloatArray) -> float:
    """The 99 % quantile of the magnitudes, so that a few large entries do not hide the rest."""
    sizes = np.abs(picture[np.isfinite(picture)])
    sizes = sizes[sizes > 0]
    return float(np.quantile(sizes, 0.99)) if sizes.size else 1.0


def _profile(title: str, unit: str, shares: FloatArray) -> str:
    heights, stretch = _condensed(shares)
    titles = Titles(f"Share of outliers in each {unit}", unit if stretch == 1 else f"{unit} / {stretch}", "percent")
    drawing = svg.bars([Series(unit, list(100 * heights))], titles)
    worst = np.argsort(-shares, kind="stable")[:3]
    told = ", ".join(f"{index} ({shares[index]:.1%})" for index in worst)
    merged = f" Each bar is the largest of {stretch} {unit}s." if stretch > 1 else ""
    return section(title, figure(drawing, f"The median {unit} has {np.median(shares):.1%}; most: {told}.{merged}"))


def _condensed(values: FloatArray) -> tuple[FloatArray, int]:
    stretch = -(-len(values) // MOST_POINTS)
    padded = np.pad(values, (0, -len(values) % stretch))
    return padded.reshape(-1, stretch).max(axis=1), stretch


def _anomalies(anomalies: Sequence[Anomaly]) -> str:
    if not anomalies:
        return section("Most anomalous columns", paragraph("No entry is an outlier."))
    rows = [
        (
            one.sample or str(one.column),
            f"{one.share:.1%}",
            str(one.outliers),
            f"{one.largest:.4g}",
            one.feature or str(one.row),
        )
        for one in anomalies
    ]
    headings = ("sample", "#share of outliers", "#outliers", "#largest entry of S", "in feature")
    told = paragraph("By the length of their part of S. What has no name is numbered from 0.", "note")
    return section("Most anomalous columns", told, table(headings, rows))


def _files(manifest: Mapping[str, Any]) -> str:
    rows = [(name, str(facts["bytes"]), facts["sha256"]) for name, facts in manifest.get("files", {}).items()]
    spec = paragraph(f"Spec SHA-256 {manifest['spec_sha256']}", "note")
    return section("Files", folded("show sizes and digests", table(("file", "#bytes", "SHA-256"), rows)), spec)
