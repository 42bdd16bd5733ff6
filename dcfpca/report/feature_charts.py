"""Features and components in the report of a site: flags and gaps by feature, and each component as a profile."""

from __future__ import annotations

from html import escape

import numpy as np

from dcfpca.report import png, svg
from dcfpca.report.page import figure, paragraph, section
from dcfpca.report.sample_drawings import number
from dcfpca.report.site_figures import FloatArray, SiteFigures
from dcfpca.report.svg import Series, Titles

MOST_FEATURES = 60
MOST_COMPONENTS = 8
MOST_LOADINGS = 20


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
    told = "Noise is how far an ordinary entry lies from what is expected of it"
    told += "." if found.flag_rate is None else "; a flag is many times that."
    rest = found.rows - len(order)
    more = paragraph(f"{rest} measurements with fewer flags are not listed.", "note") if rest else ""
    return section("Measurements", paragraph(told, "note"), table, more)


def component_section(found: SiteFigures) -> str:
    """What varies together: every component with the names of its features."""
    loadings = found.components.loadings
    title = "What is normal"
    if loadings.shape[1] == 0:
        told = "Rank 0: no measurement can be predicted from the others. Expected is the typical value of each."
        return section(title, paragraph(told))
    told = "A sample's expected entries are a mixture of these patterns, which all sites share."
    drawn = [_component(found, k) for k in range(min(loadings.shape[1], MOST_COMPONENTS))]
    return section(title, paragraph(told, "note"), *drawn)


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
    widest, bar, label, width = float(np.abs(loadings).max()) or 1.0, 18.0, 150.0, 460.0
    half = (width - label) / 2
    parts = [f'<line class="grid" x1="{label + half}" x2="{label + half}" y1="0" y2="{bar * len(chosen)}"/>']
    for line, row in enumerate(chosen):
        long = abs(loadings[row]) / widest * half
        begin = label + half - (long if loadings[row] < 0 else 0.0)
        name = escape(found.features.names[row][:20])
        parts.append(
            f'<text class="tick" x="{label - 8}" y="{line * bar + 13:.0f}" text-anchor="end">{name}</text>'
            f'<rect class="c1" x="{begin:.1f}" y="{line * bar + 3:.0f}" width="{max(long, 0.5):.1f}" '
            f'height="{bar - 6}">'
            f"<title>{name}: {loadings[row]:+.2f}</title></rect>"
        )
    return f'<svg class="narrow" viewBox="0 0 {width:.0f} {bar * len(chosen):.0f}" role="img">{"".join(parts)}</svg>'
