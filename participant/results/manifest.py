"""The manifest of a result: what was run, how it ended, whether the answer can be trusted, and its files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dcfpca.atomic_files import sha256_of_file
from dcfpca.rpca.method import Columns, FloatArray, Verdict
from dcfpca.rpca.own_view.carriers import FAILS
from dcfpca.rpca.own_view.own_view import columns_sample
from dcfpca.rpca.own_view.site_shift import MOST_NAMED, Profile, feature_name, shift_notes
from dcfpca.rpca.refinement.closing_plan import VERDICT, FitEnding
from dcfpca.rpca.subspace.site_result import unexplained_text
from dcfpca.spec import RunSpec
from dcfpca.version import __version__
from participant.results.scoring_model import ScoringModel

MANIFEST = "manifest.json"
TIMES_THE_OTHERS = 2.5
NOT_BELOW = 0.05  # a site with a smaller share flagged is not said to differ, however little the others have

ALONE = (
    "At more than half of the sites the shared model fails: this result is from a fit of this site's columns alone"
    " ([policy] on_bad_model)."
)
Units = tuple[FloatArray, FloatArray]
FEWEST_USUAL_HERE, USUAL_HERE_SHARE = 5, 0.02  # of a feature's values at the site: fewer are chance


@dataclass(frozen=True, slots=True)
class ResultFacts:
    """What the manifest says besides figures: participant, run, outcome and time."""

    run_id: str
    participant: str
    digest: bytes
    rounds: int
    outcome: str
    written: str
    privacy: Mapping[str, Any] | None = None
    """What a run with differential privacy has cost here."""
    alone: bool = False
    """Whether the result is of a fit of this site's columns alone."""
    verified: bool | None = None
    """Whether the site has checked that the final consensus follows from the last sum; None where it cannot be."""


def manifest_entries(
    facts: ResultFacts, spec: RunSpec, rank: int, columns: int, certificate: dict[str, float]
) -> dict[str, Any]:
    """The entries of every run; verdict, scaling, tables and files are added by those who write them."""
    optional = {"consensus_verified": facts.verified, "privacy": facts.privacy and dict(facts.privacy)}
    return {
        "run": facts.run_id,
        "label": spec.label,
        "participant": facts.participant,
        "spec_sha256": facts.digest.hex(),
        "spec": json.loads(spec.canonical()),
        "method": spec.method,
        "rounds": facts.rounds,
        "outcome": facts.outcome + unexplained_text(certificate),
        "rank": rank,
        "rows": spec.rows,
        "columns": columns,
        "orientation": "features-in-rows",
        "certificate": certificate,
        "software": f"dcfpca {__version__}",
        "written": facts.written,
        **{name: value for name, value in optional.items() if value is not None},
    }


def write_manifest(target: Path, manifest: Mapping[str, Any], files: Iterable[str]) -> None:
    """Write the manifest, with the size and digest of each of these files."""
    paths = {name: target / name for name in files}
    listed = {name: {"bytes": at.stat().st_size, "sha256": sha256_of_file(at).hex()} for name, at in paths.items()}
    text = json.dumps({**manifest, "files": listed}, indent=2, ensure_ascii=False)
    (target / MANIFEST).write_text(text + "\n", encoding="utf-8")


def verdict_entry(
    verdict: Verdict | None, outcome: str, standing: str = "", shifts: Sequence[str] = ()
) -> dict[str, Any]:
    """The `verdict` of a manifest; `standing` is what `site_standing` says, and `shifts` what `site_shifts` does."""
    if verdict is None:
        return {"sound": False, "sentence": f"The run ended without the rounds that judge an answer: {outcome}."}
    return {
        "sound": verdict.sound and standing in ("", ALONE),
        "checked": verdict.checked and standing in ("", ALONE),
        "sentence": f"{verdict.sentence} {standing}".strip(),
        "reasons": [*verdict.reasons, *([standing] if standing else [])],
        "notes": [*verdict.notes, *shifts],
    }


def site_standing(judge: ScoringModel | None, certificate: Mapping[str, float]) -> str:
    """A sentence where the shared model does not serve this site, or far more of it is flagged than over all sites; it
    never leaves the site."""
    if judge is None or judge.plan.ending is FitEnding.EXACT or not judge.plan.has_null:
        return ""
    if certificate.get("error_ratio", 0.0) > FAILS:
        times = f"{certificate['error_ratio']:.1f} times"
        return f"The shared model fails here: a model of this site alone predicts hidden entries {times} as well."
    own, pooled = certificate.get("outlier_share", 0.0), float(judge.plan.verdict[VERDICT.index("flagged")])
    if own <= max(TIMES_THE_OTHERS * pooled, NOT_BELOW):
        return ""
    return (
        f"This site differs from the others: {own:.1%} of its entries are flagged, {pooled:.1%} over all sites; "
        "compare its units and codes with theirs."
    )


def own_view_note(judge: ScoringModel | None, certificate: Mapping[str, float]) -> tuple[str, ...]:
    """A sentence where entries are judged only by what all sites share."""
    if "error_ratio" in certificate or (judge is not None and judge.plan.ending is FitEnding.EXACT):
        return ()
    return (
        "Entries are judged only by what all sites share, because this run forms no view of the site's own: that needs"
        " method subspace, covariance = true, at most 256 features and no differential privacy.",
    )


def usual_here_notes(usual_here: FloatArray, columns: int, features: Sequence[str]) -> tuple[str, ...]:
    """Sentences on features of which many values (m × 2: above and below) are unusual for the consortium only."""
    many = max(FEWEST_USUAL_HERE, USUAL_HERE_SHARE * columns)
    rows, sides = np.nonzero(usual_here >= many)
    order = np.argsort(-usual_here[rows, sides], kind="stable")[:MOST_NAMED]
    return tuple(
        f"{feature_name(int(row), features)}: {usual_here[row, side]:.0f} of {columns} values are"
        f" {('high', 'low')[side]} compared with all sites, and usual at this one: a device, a unit, or your samples?"
        for row, side in zip(rows[order], sides[order], strict=True)
    )


def site_shifts(
    judge: ScoringModel | None, units: Units | None, data: Columns, features: Sequence[str]
) -> tuple[str, ...]:
    """Sentences on features whose values differ from those of all sites; computed here and told to nobody. `units` are
    medians and scales of a run that found them, which a whole site that is off moves least."""
    refined = judge if judge is not None and judge.plan.ending is FitEnding.REFINED else None
    known = Profile.of_units(*units) if units is not None else None
    if refined is not None:
        plan, scale = refined.plan, refined.scale
        counted = plan.calibration.entries if plan.calibration is not None else np.full(len(scale), np.nan)
        gaps = 1.0 - counted / plan.columns
        told = Profile(refined.centre + scale * plan.median, scale * plan.spread, plan.one_value, gaps)
        known = told.with_units(known) if known is not None else told
    return shift_notes(known, columns_sample(data), features) if known is not None else ()
