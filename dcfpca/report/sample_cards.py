"""The samples that stand out, as small multiples: each with what was found, what was expected, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dcfpca.report import png
from dcfpca.report.page import escape, short_labels, table
from dcfpca.report.site_figures import FloatArray, OddSample, SiteFigures
from dcfpca.report.svg import CentredBar, centred_bars, framed

MOST_CARDS = 24
MOST_ENTRIES = 6


def rank_text(one: OddSample, row: int, found: SiteFigures) -> str:
    """How an entry ranks among all values of its measurement in the consortium: true whatever their distribution."""
    most, values = one.exceeded_by[row], found.features.values[row]
    return "" if np.isnan(most) or not values else f"further off than all but at most {most:.0f} of {values:,.0f}"


def sample_cards(found: SiteFigures) -> str:
    """The oddest samples, drawn."""
    cards = [_card(one, found) for one in found.odd[:MOST_CARDS]]
    return f'<div class="cards">{"".join(cards)}</div>'


def _card(one: OddSample, found: SiteFigures) -> str:
    names = found.features.names
    lines = "".join(
        f"<li><b>{escape(names[row])}</b>: {number(one.observed[row])}, expected {rounded(one.expected[row])} "
        f'<span class="off">{noise_text(one.z[row])}</span> {rank_text(one, row, found)}'
        f"{f'<br><b>{escape(one.stories[row])}</b>' if one.stories.get(row) else ''}</li>"
        for row in one.rows[:MOST_ENTRIES]
    )
    more = f"<li>and {len(one.rows) - MOST_ENTRIES} more</li>" if len(one.rows) > MOST_ENTRIES else ""
    unusual = "<p class=note>No single entry is flagged: the sample is unusual as a whole.</p>"
    return (
        f'<article class="card" data-text="{escape(_words(one, names))}" data-flag="{"yes" if one.flagged else "no"}">'
        f"<h3>{escape(one.sample)}</h3><p class=note>{_judgement(one, found.flag_rate is not None)}</p>"
        f"{f'<ul>{lines}{more}</ul>' if one.rows else unusual}{drawing(one, found)}</article>"
    )


def _judgement(one: OddSample, judged: bool) -> str:
    if not judged:
        return ""
    return "flagged as a whole" if one.flagged else "not flagged as a whole"


def _words(one: OddSample, names: Sequence[str]) -> str:
    return " ".join([one.sample, *(names[row] for row in one.rows[:MOST_ENTRIES])]).lower()


def entry_table(found: SiteFigures) -> str:
    """Everything that is flagged, one line each, for searching."""
    lines = [
        (
            one.sample,
            one.feature or "as a whole",
            "" if math.isnan(one.observed) else number(one.observed),
            "" if math.isnan(one.expected) else rounded(one.expected),
            one.story,
            one.unusual,
        )
        for one in found.listed
    ]
    headings = ("sample", "measurement", "#found", "#expected", "what may have happened", "how unusual")
    return table(headings, lines, searched=[f"{one.sample} {one.feature} {one.story}" for one in found.listed])


MOST_BARS = 16
CARD_WIDTH, PROFILE_HEIGHT = 300.0, 110.0
_MARGIN = 46.0
LABEL_LETTERS = 14
_CLIP = 12.0  # in noise: longer bars are cut


def number(value: float) -> str:
    """A measurement as people write it."""
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:.3g}"


def rounded(value: float) -> str:
    """An estimate, which is not known to more than three digits."""
    return f"{float(f'{value:.3g}'):.10g}" if abs(value) < 1e5 else f"{value:.3g}"


def noise_text(z: float) -> str:
    """How far off, in noise."""
    return f"{z:+.1f} noise" if abs(z) < 1000 else f"{'+' if z > 0 else '−'}over 1000 noise"


def drawing(one: OddSample, found: SiteFigures) -> str:
    """The sample as images, as a profile, or as a bar for each entry."""
    match found.drawing:
        case "image":
            assert found.image is not None
            return _images(one, found.image)
        case "profile":
            return _profile(one)
        case _:
            return _bars(one, found.features.names)


def _images(one: OddSample, shape: tuple[int, int]) -> str:
    centre = float(np.nanmedian(one.expected))
    reach = float(np.nanquantile(np.abs(one.expected - centre), 0.99)) or 1.0
    shown = [("found", one.observed - centre, reach), ("expected", one.expected - centre, reach)]
    shown.append(("off by, in noise", one.z, max(float(np.nanquantile(np.abs(one.z), 0.999)), 6.0)))
    pictures = [
        f'<figure><img alt="{title} at {escape(one.sample)}" '
        f'src="{png.data_uri(png.levels(values.reshape(shape), span))}">'
        f"<figcaption>{title}</figcaption></figure>"
        for title, values, span in shown
    ]
    return f'<div class="triple">{"".join(pictures)}</div>'


def _profile(one: OddSample) -> str:
    """Found and expected as two lines over the features, flagged entries as dots."""
    values = np.concatenate([one.observed, one.expected])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    across = np.linspace(_MARGIN, CARD_WIDTH - 6, one.observed.size)
    scale = (PROFILE_HEIGHT - 16) / ((high - low) or 1.0)
    found, expected = (PROFILE_HEIGHT - 8 - (one - low) * scale for one in (one.observed, one.expected))
    dots = "".join(f'<circle class="c3" cx="{across[row]:.1f}" cy="{found[row]:.1f}" r="3"/>' for row in one.rows)
    key = "".join(
        f'<text class="tick" x="{_MARGIN - 6:.0f}" y="{y:.0f}" text-anchor="end">{number(value)}</text>'
        for y, value in ((12.0, high), (PROFILE_HEIGHT - 4, low))
    )
    lines = _line("l4", across, expected) + _line("l1", across, found)
    title = f"found (blue) and expected (grey) at {one.sample}"
    return framed(lines + dots + key, (CARD_WIDTH, PROFILE_HEIGHT), title, "small")


def _line(kind: str, across: FloatArray, down: FloatArray) -> str:
    """A polyline for each stretch without gaps."""
    gaps = np.flatnonzero(np.isnan(down))
    made = []
    for stretch in np.split(np.arange(down.size), gaps):
        points = " ".join(f"{across[k]:.1f},{down[k]:.1f}" for k in stretch if not np.isnan(down[k]))
        made.append(f'<polyline class="{kind}" points="{points}"/>' if points else "")
    return "".join(made)


def _bars(one: OddSample, names: Sequence[str]) -> str:
    """How far off each entry is, in noise; of many features those that are furthest off."""
    sizes = np.where(np.isnan(one.z), 0.0, np.abs(one.z))
    chosen = np.sort(np.argsort(-sizes, kind="stable")[:MOST_BARS])
    labels = short_labels([names[row] for row in chosen], LABEL_LETTERS)
    bars = [
        _bar(label, names[row], float(one.z[row]), row in one.rows) for label, row in zip(labels, chosen, strict=True)
    ]
    title = f"how far off each entry of {one.sample} is"
    return centred_bars(bars, title, "small", width=CARD_WIDTH, label=96.0, step=15.0)


def _bar(label: str, name: str, z: float, flagged: bool) -> CentredBar:
    share = float(np.clip(z / _CLIP, -1.0, 1.0))
    return CentredBar(label, share, f"{name}: {noise_text(z)}", "c3" if flagged else "c4")
