"""The report for the people of one site: the verdict, who stands out and in what, and what is normal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dcfpca.report import png, svg
from dcfpca.report.page import (
    embedded_script,
    escape,
    figure,
    figures,
    folded,
    page,
    paragraph,
    section,
    short_labels,
    table,
)
from dcfpca.report.sample_cards import MOST_CARDS, entry_table, number, sample_cards
from dcfpca.report.site_figures import FloatArray, SiteFigures
from dcfpca.report.svg import CentredBar, Series, Titles

_UNCHECKED = (
    "The site could not check that the final U follows from the last sum: compare the SHA-256 of U.npy in the "
    "manifest with that of other sites."
)
_UNJUDGED = (
    "This run held no closing rounds, which measure the noise over all sites: an entry is flagged where the normal "
    "part does not reach it, however small the deviation. How many flags are ordinary entries is not known, and "
    "samples are not judged as a whole. Look at the largest deviations."
)
_SEARCH = (
    '<form class="search" role="search"><input id="search" type="search" aria-label="Search" autocomplete="off" '
    'placeholder="Search an id or a measurement"><label><input id="only" type="checkbox"> flagged samples only</label>'
    '<span id="matches" aria-live="polite"></span></form>'
)


def site_report(manifest: Mapping[str, Any], found: SiteFigures, written: str) -> str:
    """The HTML of a site's report."""
    name = manifest.get("scored") or manifest.get("label") or manifest["run"]
    parts = [
        _head(manifest, found, name, written),
        _samples(found),
        feature_section(found),
        component_section(found),
        heat_map_section(found),
        *_privacy(manifest),
        _run(manifest),
    ]
    return page(f"{name} at {manifest['participant']}", parts, embedded_script("search.js"))


def _head(manifest: Mapping[str, Any], found: SiteFigures, name: str, written: str) -> str:
    verdict = manifest.get("verdict", {})
    sound = bool(verdict.get("sound"))
    word = _word(sound, bool(verdict.get("checked")))
    sentence = str(verdict.get("sentence") or manifest["outcome"])
    observed = max(found.rows * found.columns - found.missing, 1)
    judged = found.flag_rate is not None
    numbers = [
        ("samples flagged as a whole", f"{found.flagged_samples} of {found.columns}" if judged else "not judged"),
        ("flagged entries", f"{found.outliers} ({found.outliers / observed:.1%})"),
        ("missing entries", f"{found.missing / (found.rows * found.columns):.0%}"),
        ("patterns (rank)", str(manifest["rank"])),
    ]
    return "\n".join(
        [
            f"<header><h1>{escape(name)} at {escape(manifest['participant'])}</h1>",
            f'<div class="verdict {"sound" if sound else "doubt"}"><strong>{word}</strong> {escape(sentence)}</div>',
            *(paragraph(str(note), "note") for note in verdict.get("notes", [])),
            *(paragraph(f"Instrument: {one}", "note") for one in manifest.get("instruments", [])),
            *([] if judged else [paragraph(_UNJUDGED, "note")]),
            figures(numbers),
            paragraph(f"Written {written}. For this site only: nothing in this file has left it.", "note"),
            "</header>",
        ]
    )


def _word(sound: bool, checked: bool) -> str:
    """Trust is only spoken of where the run's own checks have shown it."""
    if sound and checked:
        return "The answer can be trusted"
    return "Nothing contradicts the answer, but its flags were not checked" if sound else "Read with care"


def _samples(found: SiteFigures) -> str:
    if not found.odd:
        return section("Who stands out", paragraph("No sample stands out, and no entry is flagged."))
    shown = len(found.odd[:MOST_CARDS])
    predicted = found.related or found.components.shares.size
    expected = "what the sample's other measurements predict" if predicted else "its typical value"
    note = (
        f"The {shown} most unusual samples, in the order of how unusual each is as a whole. "
        f"Each measurement is compared with {expected}. "
        "+8 noise: the value lies above that by eight times what is usual for the measurement. Further off than all "
        "but at most 5 of 790: its rank among the values counted at all sites. Flagged entries are red."
    )
    if found.drawing == "profile":
        note += " Blue is what was found, grey what was expected."
    every = folded(f"everything that is flagged, {len(found.listed)} lines", entry_table(found)) if found.listed else ""
    aside = paragraph(found.aside, "note") if found.aside else ""
    return section("Who stands out", paragraph(note, "note"), aside, _SEARCH, sample_cards(found), every)


def _privacy(manifest: Mapping[str, Any]) -> list[str]:
    """What the run has cost of the privacy of the site's data; nothing for a run without differential privacy."""
    spent = manifest.get("privacy")
    return [section("What privacy was spent", paragraph(str(spent["sentence"])))] if spent else []


def _run(manifest: Mapping[str, Any]) -> str:
    facts = [
        f"Run {manifest['run']}, method {manifest['method']}, {manifest['rounds']} rounds: {manifest['outcome']}.",
        f"Spec SHA-256 {manifest['spec_sha256']}",
        *([] if manifest.get("consensus_verified", True) else [_UNCHECKED]),
        *(f"{key.replace('_', ' ')}: {value:.3g}" for key, value in manifest.get("certificate", {}).items()),
    ]
    rows = [(name, str(one["bytes"]), one["sha256"]) for name, one in manifest.get("files", {}).items()]
    listed = table(("file", "#bytes", "SHA-256"), rows)
    return section("The run", folded("figures, files and digests", *(paragraph(one, "note") for one in facts), listed))


MOST_FEATURES = 60
MOST_COMPONENTS = 8
MOST_LOADINGS, MOST_LETTERS = 20, 20


def feature_section(found: SiteFigures) -> str:
    """The features with most flags, of many only those with any flag or gap."""
    features = found.features
    seen = np.maximum(found.columns * (1.0 - features.missing_share), 1.0)
    order = np.lexsort((-features.missing_share, -features.flags))[:MOST_FEATURES]
    widest = max(float(features.flags.max(initial=0.0)), 1.0)
    lines = "".join(
        f'<tr data-text="{escape(features.names[row].lower())}"><td>{escape(features.names[row])}</td>'
        f"<td class=n>{features.flags[row]:.0f}</td>"
        f'<td class="bar"><div style="width:{100 * features.flags[row] / widest:.0f}%"></div></td>'
        f"<td class=n>{features.flags[row] / seen[row]:.1%}</td><td class=n>{features.missing_share[row]:.0%}</td>"
        f"<td class=n>{number(float(features.noise[row]))}</td></tr>"
        for row in order
    )
    head = (
        "<th>measurement</th><th class=n>flags</th><th></th><th class=n>of its entries</th>"
        "<th class=n>missing</th><th class=n>noise, in its unit</th>"
    )
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'
    note = "Noise is how far an ordinary entry lies from what is expected of it"
    note += "." if found.flag_rate is None else "; a flag is many times that."
    rest = found.rows - len(order)
    more = paragraph(f"{rest} measurements with fewer flags are not listed.", "note") if rest else ""
    return section("Measurements", paragraph(note, "note"), table, more)


def component_section(found: SiteFigures) -> str:
    """What varies together: every component with the names of its features."""
    loadings = found.components.loadings
    title = "What is normal"
    if loadings.shape[1] == 0:
        note = "Rank 0: no pattern that all sites share predicts the measurements better than their typical values do. "
        note += "Single ones are still expected from those they vary with." if found.related else ""
        return section(title, paragraph(note))
    note = "A sample's expected entries are a mixture of these patterns, which all sites share."
    drawn = [_component(found, k) for k in range(min(loadings.shape[1], MOST_COMPONENTS))]
    return section(title, paragraph(note, "note"), *drawn)


def _component(found: SiteFigures, place: int) -> str:
    loadings, share = found.components.loadings[:, place], found.components.shares[place]
    caption = f"Component {place + 1}: {share:.0%} of what varies here"
    if found.image is not None:
        reach = float(np.abs(loadings).max()) or 1.0
        picture = png.data_uri(png.levels(loadings.reshape(found.image), reach))
        return figure(f'<img class="pixels" alt="{caption}" src="{picture}">', caption)
    titles = Titles(caption, "measurement, in order", "loading")
    if found.drawing == "profile":
        return figure(svg.lines([Series("loading", [float(one) for one in loadings])], titles), caption)
    return figure(_loading_bars(loadings, found), caption)


def _loading_bars(loadings: FloatArray, found: SiteFigures) -> str:
    """The largest loadings with the names of their features, as bars to the left and right."""
    chosen = np.argsort(-np.abs(loadings), kind="stable")[:MOST_LOADINGS]
    widest, names = float(np.abs(loadings).max()) or 1.0, found.features.names
    labels = short_labels([names[row] for row in chosen], MOST_LETTERS)
    bars = [
        CentredBar(label, loadings[row] / widest, f"{names[row]}: {loadings[row]:+.2f}")
        for label, row in zip(labels, chosen, strict=True)
    ]
    return svg.centred_bars(bars, "loadings", "narrow", width=460.0, label=150.0, step=18.0)


MOST_LABELS = 40
TALL, SHORT = 420, 14  # pixels: of a picture of many rows, and of one row of a few

_MIDDLE = 6.0
"""Noise at which deviations reach full colour."""


def heat_map_section(found: SiteFigures) -> str:
    """Deviations, the data itself, and where it has gaps."""
    pictures = found.pictures
    note = "Measurements downwards, samples to the right, in the order of the data."
    tiled = pictures.data.shape != (found.rows, found.columns)
    tiles = " Neighbours share a pixel: their largest deviation, mean, or share of gaps." if tiled else ""

    parts = [
        _picture("Off by, in noise (blue below, red above what is expected)", pictures.deviation, _MIDDLE, found),
        _picture("The data relative to its centre, in noise", pictures.data, _reach(pictures.data), found),
    ]
    if found.missing:
        parts.append(_picture("Missing (red)", pictures.missing, 1.0, found))
    return section("The whole matrix", paragraph(note + tiles, "note"), *parts)


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
