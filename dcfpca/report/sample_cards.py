"""The samples that stand out, as small multiples: each with what was found, what was expected, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from dcfpca.report.sample_drawings import drawing, noise_text, number, rounded
from dcfpca.report.site_figures import OddSample, SiteFigures

MOST_CARDS = 24
MOST_LISTED = 500
MOST_ENTRIES = 6


def chance_text(p_value: float) -> str:
    """How sure a flag is: how often chance alone would make a sample as odd."""
    if np.isnan(p_value):
        return ""
    if p_value >= 0.01:
        return f"by chance {100 * p_value:.0f} in 100"
    return f"by chance 1 in {float(f'{1 / p_value:.2g}'):,.0f}" if p_value > 1e-9 else "by chance under 1 in a billion"


def sample_cards(found: SiteFigures) -> str:
    """The oddest samples, drawn."""
    cards = [_card(one, found) for one in found.odd[:MOST_CARDS]]
    return f'<div class="cards">{"".join(cards)}</div>'


def _card(one: OddSample, found: SiteFigures) -> str:
    names = found.features.names
    lines = "".join(
        f"<li><b>{escape(names[row])}</b>: {number(one.observed[row])}, expected {rounded(one.expected[row])} "
        f'<span class="off">{noise_text(one.z[row])}</span></li>'
        for row in one.rows[:MOST_ENTRIES]
    )
    more = f"<li>and {len(one.rows) - MOST_ENTRIES} more</li>" if len(one.rows) > MOST_ENTRIES else ""
    unusual = "<p class=note>No single entry is flagged: the sample is unusual as a whole.</p>"
    return (
        f'<article class="card" data-text="{escape(_words(one, names))}" data-flag="{"yes" if one.flagged else "no"}">'
        f"<h3>{escape(one.sample)}</h3><p class=note>{_told(one, found.flag_rate is not None)}</p>"
        f"{f'<ul>{lines}{more}</ul>' if one.rows else unusual}{drawing(one, found)}</article>"
    )


def _told(one: OddSample, judged: bool) -> str:
    if not judged:
        return ""
    return "; ".join(filter(None, ("flagged" if one.flagged else "not flagged as a whole", chance_text(one.p_value))))


def _words(one: OddSample, names: Sequence[str]) -> str:
    return " ".join([one.sample, *(names[row] for row in one.rows[:MOST_ENTRIES])]).lower()


def sample_table(found: SiteFigures) -> str:
    """All samples that stand out, one line each, for searching and sorting by eye."""
    names = found.features.names
    lines = []
    for one in found.odd[:MOST_LISTED]:
        told = "; ".join(
            f"{names[row]}: {number(one.observed[row])} instead of {rounded(one.expected[row])}" for row in one.rows[:3]
        )
        lines.append(
            f'<tr data-text="{escape(_words(one, names))}" data-flag="{"yes" if one.flagged else "no"}">'
            f"<td>{escape(one.sample)}</td><td>{'flagged' if one.flagged else ''}</td>"
            f"<td class=n>{len(one.rows)}</td><td>{escape(told)}</td><td>{escape(chance_text(one.p_value))}</td></tr>"
        )
    head = "<th>sample</th><th></th><th class=n>entries</th><th>what was found</th><th>how sure</th>"
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
