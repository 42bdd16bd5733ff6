"""What a manifest says on whether the answer can be trusted, and how the site stands among the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dcfpca.rpca.method import Verdict
from dcfpca.rpca.refinement.closing_plan import VERDICT, FitEnding
from participant.results.scoring_model import ScoringModel

TIMES_THE_OTHERS = 2.5
NOT_BELOW = 0.05  # a site with a smaller share flagged is not said to differ, however little the others have


def verdict_entry(verdict: Verdict | None, outcome: str, standing: str = "") -> dict[str, Any]:
    """The `verdict` of a manifest; `standing` is what `site_standing` says."""
    if verdict is None:
        return {"sound": False, "sentence": f"The run ended without the rounds that judge an answer: {outcome}."}
    return {
        "sound": verdict.sound and not standing,
        "sentence": f"{verdict.sentence} {standing}".strip(),
        "reasons": [*verdict.reasons, *([standing] if standing else [])],
        "notes": list(verdict.notes),
    }


def site_standing(judge: ScoringModel | None, certificate: Mapping[str, float]) -> str:
    """A sentence where far more of this site is flagged than over all sites; it is computed here and told to nobody."""
    if judge is None or judge.plan.ending is FitEnding.EXACT or not judge.plan.has_null:
        return ""
    own, pooled = certificate.get("outlier_share", 0.0), float(judge.plan.verdict[VERDICT.index("flagged")])
    if own <= max(TIMES_THE_OTHERS * pooled, NOT_BELOW):
        return ""
    return (
        f"This site differs from the others: {own:.1%} of its entries are flagged, {pooled:.1%} over all sites; "
        "compare its units and codes with theirs."
    )
