"""What `check` prints about the data: what was recognised, what was left out, and every feature."""

from __future__ import annotations

from collections.abc import Sequence

from dcfpca.suggestions import listed
from dcfpca.text.console import Json, add_row, result, show, table
from participant.data.feature_profile import KIND_TEXTS, FeatureProfile
from participant.local_site import LocalSite

MOST_LISTED = 60


def data_notes(site: LocalSite) -> list[str]:
    """What was recognised while reading, and which samples have no entry."""
    said = list(site.matrix.notes)
    if site.data.empty:
        lines = listed([str(place) for place in site.data.empty])
        said.append(f"{len(site.data.empty)} samples have no entry and are left out: {lines} (counted from 0)")
    said.append(
        "its samples have ids, which stay here" if site.matrix.ids else "its samples have no ids: they are numbered"
    )
    return said


def feature_document(one: FeatureProfile) -> dict[str, Json]:
    """A feature in `check --json`."""
    return {
        "name": one.name,
        "kind": one.kind,
        "missing_share": one.missing_share,
        "median": one.median,
        "mad": one.mad,
        "least": one.least,
        "greatest": one.greatest,
        "carries_low_rank": one.carries_low_rank,
    }


def show_features(profiles: Sequence[FeatureProfile]) -> None:
    """A line for each feature, of many only the first, and a sentence about those that cannot share a pattern."""
    made = table("feature", "what it is", "#missing", "#median", "#MAD", "#least", "#greatest")
    for one in profiles[:MOST_LISTED]:
        figures = (f"{value:.4g}" for value in (one.median, one.mad, one.least, one.greatest))
        add_row(made, one.name, KIND_TEXTS[one.kind], f"{one.missing_share:.0%}", *figures)
    show(made)
    if len(profiles) > MOST_LISTED:
        result(f"and {len(profiles) - MOST_LISTED} more features; --json lists all")
    if useless := [one.name for one in profiles if not one.carries_low_rank]:
        result(f"cannot carry a low-rank part, being nearly constant or empty here: {listed(useless, 20)}")
    if codes := [one.name for one in profiles if one.kind == "codes"]:
        result(f"may be categories coded as numbers, whose order must mean something: {listed(codes, 20)}")
