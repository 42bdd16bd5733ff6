"""What a spec may ask of differential privacy, and which other keys of a spec go with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

DEFAULT_ROUNDS = 3
SMALLEST_CLIP, LARGEST_CLIP = 2.0**-70, 2.0**70
"""Lengths of columns that the histogram of lengths can tell apart, with room on both sides."""
MOST_SITES = 1023
"""With more, the sum's fixed point would be coarser than the grid on which the noise is drawn."""


class PrivacySettings(BaseModel):
    """Differential privacy per column: what the whole run may tell about one column. Absent: no noise is added."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    epsilon: float = Field(ge=0.01, le=100, description="ε of the whole run, at every site, for one column.")
    delta: float = Field(
        1e-6, ge=1e-12, le=1e-2, description="δ of the whole run; well below one over the number of columns."
    )
    rounds: int = Field(
        DEFAULT_ROUNDS,
        ge=1,
        le=50,
        description="Rounds that open a tensor, after an opening round; a run always takes all of them.",
    )
    clip: float | Literal["auto"] = Field(
        "auto", description='Length to which longer columns are shortened; "auto": from a private histogram of lengths.'
    )
    conspirators: int = Field(
        1,
        ge=0,
        description="How many sites may tell the aggregator their noise without harm to the privacy of the others.",
    )
    max_error: float = Field(
        0.3, gt=0, le=1, description="End the run after its opening if its noisy count predicts a larger sin θ."
    )

    @field_validator("clip", mode="before")
    @classmethod
    def _a_length_or_auto(cls, value: Any) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value != "auto" and not (number and SMALLEST_CLIP <= value <= LARGEST_CLIP):
            raise ValueError('it must be "auto" or the length of a column, a positive number')
        return value

    @property
    def fixed_clip(self) -> float | None:
        """The clip that the spec states; None where the histogram of lengths decides."""
        return None if self.clip == "auto" else float(self.clip)


_NEEDED: Mapping[str, tuple[Any, str]] = {
    "method": ("subspace", 'only method = "subspace" has a private form'),
    "aggregation": (
        "secure",
        'noise protects the sum, and plain aggregation shows each site; set aggregation = "secure"',
    ),
    "precision": (64, "noise in whole steps needs sums of 64 bits; set precision = 64"),
    "closing_rounds": (False, "closing rounds have no private form; leave closing_rounds out"),
    "scaling": ("none", 'medians of features have no private form; set scaling = "none"'),
    "missing_features": ("refuse", 'counts of features have no private form; set missing_features = "refuse"'),
    "warm_start": ("", "an earlier run may reveal its columns without noise; leave warm_start out"),
}


def derived_keys(privacy: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of a spec that follow from its table of privacy, and may be left out."""
    rounds = privacy.get("rounds", DEFAULT_ROUNDS)
    return {"closing_rounds": False, "scaling": "none"} | ({"rounds": rounds} if isinstance(rounds, int) else {})


def check_together(privacy: PrivacySettings, spec: Any) -> None:
    """Raise ValueError unless the other keys of this spec go with its table of privacy."""
    for key, (wanted, reason) in _NEEDED.items():
        if getattr(spec, key) != wanted:
            raise ValueError(f"privacy: {reason}")
    if spec.rounds != privacy.rounds:
        raise ValueError(f"rounds says {spec.rounds}, and privacy.rounds {privacy.rounds}; leave rounds out")
    if len(spec.participants) > MOST_SITES:
        raise ValueError(f"a private run takes at most {MOST_SITES} participants")
    named = len(spec.participants) or None
    fewest = min((count for count in (named, spec.quorum) if count is not None), default=None)
    if fewest is not None and privacy.conspirators >= fewest:
        raise ValueError(
            f"privacy.conspirators = {privacy.conspirators} leaves no honest site in a cohort of {fewest}; lower it"
        )
