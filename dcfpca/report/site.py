"""The report for the people of one site: the verdict, who stands out and in what, and what is normal."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from dcfpca.report.feature_charts import component_section, feature_section
from dcfpca.report.heat_maps import heat_map_section
from dcfpca.report.page import embedded_script, figures, folded, page, paragraph, section, table
from dcfpca.report.sample_cards import MOST_CARDS, MOST_LISTED, sample_cards, sample_table
from dcfpca.report.site_figures import SiteFigures

_UNCHECKED = (
    "The site could not check that the final U follows from the last sum: compare the SHA-256 of U.npy in the "
    "manifest with that of other sites."
)
_UNJUDGED = (
    "This run held no closing rounds, which measure the noise over all sites: an entry is flagged where the normal "
    "part does not reach it, be the deviation large or small. How many flags are false alarms is not known, and "
    "samples are not judged as a whole. Look at the largest deviations."
)
_SEARCH = (
    '<form class="search" role="search"><input id="search" type="search" aria-label="Search" autocomplete="off" '
    'placeholder="Search an id or a measurement"><label><input id="only" type="checkbox"> flagged samples only</label>'
    '<span id="told" aria-live="polite"></span></form>'
)


def site_report(manifest: Mapping[str, Any], found: SiteFigures, written: str) -> str:
    """The HTML of a site's report."""
    name = manifest.get("label") or manifest["run"]
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
    word = "The answer can be trusted" if sound else "Read with care"
    sentence = str(verdict.get("sentence") or manifest["outcome"])
    observed = max(found.rows * found.columns - found.missing, 1)
    judged = found.flag_rate is not None
    numbers = [
        ("samples that stand out", f"{found.flagged_samples} of {found.columns}" if judged else "not judged"),
        ("flagged entries", f"{found.outliers} ({found.outliers / observed:.1%})"),
        ("false alarms among them, about", f"{found.flag_rate:.0%}" if judged else "not known"),
        ("missing entries", f"{found.missing / (found.rows * found.columns):.0%}"),
        ("patterns (rank)", str(manifest["rank"])),
    ]
    return "\n".join(
        [
            f"<header><h1>{escape(name)} at {escape(manifest['participant'])}</h1>",
            f'<div class="verdict {"sound" if sound else "doubt"}"><strong>{word}</strong> {escape(sentence)}</div>',
            *(paragraph(str(note), "note") for note in verdict.get("notes", [])),
            *([] if judged else [paragraph(_UNJUDGED, "note")]),
            figures(numbers),
            paragraph(f"Written {written}. For this site only: nothing in this file has left it.", "note"),
            "</header>",
        ]
    )


def _samples(found: SiteFigures) -> str:
    if not found.odd:
        return section("Who stands out", paragraph("No sample stands out, and no entry is flagged."))
    shown = len(found.odd[:MOST_CARDS])
    expected = "what the sample's others let expect" if found.components.shares.size else "its typical value"
    told = (
        f"The {shown} oddest samples first. Each measurement is compared with {expected}; +8 noise is eight times what "
        "ordinary entries of it are off by, above what is expected. Flagged entries are red."
    )
    if found.drawing == "profile":
        told += " Blue is what was found, grey what was expected."
    rest = f"all {len(found.odd)} as a list" if len(found.odd) < MOST_LISTED else f"the first {MOST_LISTED} as a list"
    return section(
        "Who stands out", paragraph(told, "note"), _SEARCH, sample_cards(found), folded(rest, sample_table(found))
    )


def _privacy(manifest: Mapping[str, Any]) -> list[str]:
    """What the run has cost of the privacy of the site's data; nothing for a run without differential privacy."""
    told = manifest.get("privacy")
    return [section("What privacy was spent", paragraph(str(told["sentence"])))] if told else []


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
