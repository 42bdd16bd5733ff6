"""Real data: the motorway and the servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.sections import Section, document, paragraphs, picture, power, table


def real_data(results: Path) -> Section | None:
    """Federated against pooled against each site alone."""
    data = document(results / "real-data.json")
    if data is None:
        return None
    return Section(
        "Real data",
        ("python -m benchmarks.real_data --data DIR --network --json benchmarks/results/real-data.json",),
        paragraphs(
            "Moving cars in 600 frames of a motorway camera at 60 × 80 (CDnet 2014, highway), six sites of 100 "
            "frames; and "
            "19 metrics of twelve servers (the Application Server Dataset of InterFusion), one site each. Neither "
            "is part "
            "of this project. Every run has the defaults of a spec that says only the rank.",
            *_set("The motorway", data.highway, "real-highway"),
            *_set("The servers", data.asd, "real-asd"),
        ),
        (*_behind("the motorway", data.highway), *_behind("the servers", data.asd)),
    )


def _set(title: str, found: Any, name: str) -> list[str]:
    rows = [
        [one.who, f"{one.roc_area:.3f}", f"{one.best_f1:.3f}", f"{one.average_precision:.3f}"] for one in found.verdicts
    ]
    better = sum(site.federated > getattr(site, "each site alone") for site in found.roc_area_by_site)
    return [
        f"**{title}**, rank {found.rank}:",
        picture(name, f"{title}: curves", "png"),
        picture(f"{name}-sites", f"{title}: site by site", "png"),
        table(["who", "area under ROC", "best F1", "average precision"], rows),
        f"Federated and pooled scores differ by at most {power(found.federated_against_pooled)}; federated is "
        "better than "
        f"a site's own run at {better} of {len(found.roc_area_by_site)} sites.",
    ]


def _behind(title: str, found: Any) -> list[str]:
    ours = found.verdicts[0]
    return [
        f"On {title} {one.who} has the larger area under ROC: {one.roc_area:.3f} against {ours.roc_area:.3f}."
        for one in found.verdicts
        if one.roc_area > ours.roc_area + 0.0005
    ]
