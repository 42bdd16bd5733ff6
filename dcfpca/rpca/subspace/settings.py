"""The tunables of `subspace`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from dcfpca.errors import BadInput

# The opening exchange counts entry sizes by powers of two over the range in which squares stay finite.
OPENING_LOWEST = -480
OPENING_STEP = 4
OPENING_BINS = 240
WARM_FASTEST = 0.03  # `fall_fastest` of a run that begins at a known subspace
LARGEST_BLOCK = 1 << 28  # of `block_bytes`; every thread of a site works in a few buffers of this size


@dataclass(frozen=True, slots=True)
class SubspaceSettings:
    """Defaults serve every case measured in docs/results; none needs setting per data set."""

    a: float = 2.0  # firm thresholding of entries: an outlier beyond aθ is taken out whole
    b: float = 2.0  # firm thresholding of singular values
    noise_factor: float = 2.0  # c_σ: entries within this many deviations of the noise are never outliers
    opening_factor: float = 2.0  # λ_0 as a multiple of the opening scale
    fall_lead: float = 1.3  # λ falls this much slower than the measured residual …
    fall_fastest: float = 0.33  # … but by no more than this …
    caution_lead: float = 12.0  # fall_lead is raised by this over the smaller side of the matrix …
    caution_fastest: float = 5.0  # … and fall_fastest by this
    fall_slowest: float = 0.9  # … and no less than this per round;
    gap: float = 40.0  # while λ is at least this many times the noise, the entries below it include outliers: then …
    fall_gap: float = 0.75  # … it falls at least this much
    rank_entry: float = 1.0  # c_ρ: singular values under c_ρ √max(m,n) λ do not enter L
    rank_noise: float = 1.1  # c_n: nor those under c_n (√m + √n) times the deviation of ω ψ(R)
    passes: int = 2  # local passes per round
    largest_relaxation: float = 2.0  # ω is never larger
    momentum_below: float = 0.1  # while L moves less, it is also carried on the way it went; 0: never
    floor: float = 1e-13  # thresholds stop falling at this share of the opening scale
    narrow_below: float = 0.02  # while L moves less and the rank stands, only entering directions are updated …
    narrow_gap: float = 2.5  # … and while their singular values are this many times those of the rest …
    narrow_rounds: int = 6  # … for this many rounds in a row
    sampled_rows: int = 150  # residuals are counted on this many rows
    block_bytes: int = 1 << 23  # a block of columns that stays in the shared cache
    single: float = 2e-5  # work in float32 while residual and movement are above this share of the data

    def __post_init__(self) -> None:
        if self.a <= 1.0 or self.b <= 1.0:
            raise BadInput(f"Firm thresholding needs a and b above 1, not {self.a} and {self.b}.", "Try a = 3, b = 2.")
        if self.passes < 1:
            raise BadInput("A round needs at least one local pass.", "Set passes to 1 or more.")
        if not 1 <= self.block_bytes <= LARGEST_BLOCK:
            raise BadInput(f"block_bytes lies between 1 and {LARGEST_BLOCK}.", "Leave it out; the default fits caches.")

    @property
    def local_passes(self) -> int:
        """Passes over a site's data in one local step."""
        return self.passes

    @lru_cache(maxsize=64)  # noqa: B019  settings are values; a run asks for the same ones in every round
    def adjusted(self, smaller_side: float, warm: bool = False) -> SubspaceSettings:
        """These settings for a matrix whose smaller side is this: the smaller, the slower λ falls. In a run that begins
        at a known subspace, λ may fall as fast as the residual does."""
        caution = 1.0 / max(smaller_side, 1.0)
        fastest = min(self.fall_fastest + self.caution_fastest * caution, self.fall_slowest)
        lead = self.fall_lead + self.caution_lead * caution
        return replace(self, fall_fastest=WARM_FASTEST if warm else fastest, fall_lead=lead)
