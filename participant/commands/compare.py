"""`dcfpca-participant compare`: what changed at this site from one run to another, or to what `transform` scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dcfpca.text.console import add_row, result, show, table
from dcfpca.text.model_change import subspace_change
from participant.findings.worklist import Finding, read_worklist
from participant.results.reading import load_model, load_scaling
from participant.results.writing import FEATURES

MOVED = 0.1
"""Of a scale: centres that moved by more, and scales that changed by more, are named."""
MOST_SHOWN = 20


def compare(results: Path, earlier: str, later: str) -> dict[str, Any]:
    """The change of the subspace, the features whose centre or scale moved, and the flags that came and went."""
    before, after = load_model(results, earlier), load_model(results, later)
    said = subspace_change(before, after)
    old, new = ({(one.sample, one.feature): one for one in read_worklist(results / run)} for run in (earlier, later))
    return {
        "earlier": earlier,
        "later": later,
        "subspace": said,
        "moved": _moved(results, earlier, later, before.shape[0]),
        "gained": [_line(new[place]) for place in new if place not in old],
        "lost": [_line(old[place]) for place in old if place not in new],
        "kept": len(old.keys() & new.keys()),
    }


def _moved(results: Path, earlier: str, later: str, rows: int) -> list[dict[str, Any]]:
    (centre, scale), (now, wide) = (load_scaling(results, run, rows) for run in (earlier, later))
    unit = np.where(scale > 0, scale, 1.0)
    shift, ratio = (now - centre) / unit, wide / unit
    names = _names(results / later, rows)
    order = np.argsort(-np.maximum(np.abs(shift), np.abs(ratio - 1.0)))
    figures = ((row, float(shift[row]), float(ratio[row])) for row in order)
    return [
        {"feature": names[row], "shift": moved, "scale": times, "centre": [float(centre[row]), float(now[row])]}
        for row, moved, times in figures
        if abs(moved) > MOVED or abs(times - 1.0) > MOVED
    ]


def _names(folder: Path, rows: int) -> list[str]:
    path = folder / FEATURES
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else [str(row) for row in range(rows)]


def _line(one: Finding) -> dict[str, Any]:
    return {"sample": one.sample, "feature": one.feature, "observed": one.observed, "story": one.story or one.said}


def show_comparison(found: dict[str, Any]) -> None:
    """What `compare` prints."""
    result(f"{found['earlier']} → {found['later']}: {found['subspace']}")
    if not found["moved"]:
        result("no centre moved by more than a tenth of its scale, and no scale changed by more than a tenth")
    for one in found["moved"][:MOST_SHOWN]:
        old, new = one["centre"]
        result(
            f"{one['feature']}: centre {old:.4g} → {new:.4g} ({one['shift']:+.2g} scales), scale × {one['scale']:.3g}"
        )
    result(f"{len(found['gained'])} findings are new, {len(found['lost'])} are gone, {found['kept']} are in both")
    made = table("", "sample", "feature", "#found", "what may have happened")
    for sign, name in (("+", "gained"), ("−", "lost")):
        for one in found[name][:MOST_SHOWN]:
            figure = "" if np.isnan(one["observed"]) else f"{one['observed']:.6g}"
            add_row(made, sign, one["sample"], one["feature"] or "as a whole", figure, one["story"])
    if found["gained"] or found["lost"]:
        show(made)
