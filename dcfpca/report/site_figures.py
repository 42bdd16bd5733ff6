"""What the report of a site is drawn from; features in rows, in the site's own units unless it says noise."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Drawing = Literal["bars", "profile", "image"]
FEWEST_IN_PROFILE = 8
_NUMBERED = re.compile(r"\D*(\d+)\D*")


@dataclass(frozen=True, slots=True, eq=False)
class OddSample:
    """One of the samples that stand out: its entries, what was expected of them, and which are flagged."""

    sample: str
    flagged: bool
    observed: FloatArray
    expected: FloatArray
    z: FloatArray  # (observed − expected) over the feature's noise; NaN where unobserved
    exceeded_by: FloatArray  # at most this many values of the feature at all sites are further off; NaN: unknown
    rows: tuple[int, ...]  # flagged, the largest |z| first
    stories: Mapping[int, str] = field(default_factory=dict)  # what may have happened, by flagged feature


@dataclass(frozen=True, slots=True)
class ListedEntry:
    """A line of the list of everything that is flagged; without a feature, the sample as a whole."""

    sample: str
    feature: str
    observed: float
    expected: float
    unusual: str
    story: str


@dataclass(frozen=True, slots=True, eq=False)
class FeatureFigures:
    """One number per feature each."""

    names: Sequence[str]
    named: bool  # False: the names are numbers that the report gave
    noise: FloatArray
    flags: FloatArray
    missing_share: FloatArray
    values: FloatArray  # at all sites; 0 where that is not known


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """The directions of the normal part: loadings, m × r, and each one's share of its variation."""

    loadings: FloatArray
    shares: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """One number per tile of the matrix: data about its centre, deviations (both in noise), share of missing."""

    data: FloatArray
    deviation: FloatArray
    missing: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class SiteFigures:
    """The figures of a site's report; `odd` begins with the oddest sample and holds those that are listed."""

    rows: int
    columns: int
    missing: int
    outliers: int
    flagged_samples: int
    flag_rate: float | None  # at which samples are flagged; None where no null judged them
    features: FeatureFigures
    odd: Sequence[OddSample]
    components: Components
    related: bool  # whether entries are judged by the covariance of all features, also where the rank is 0
    pictures: Pictures
    listed: Sequence[ListedEntry] = ()  # everything that is flagged; none where no null judged it
    aside: str = ""  # which feature makes most of what is listed and therefore comes last; empty where none does
    image: tuple[int, int] | None = None  # height and width, where features are the pixels of an image

    @property
    def drawing(self) -> Drawing:
        """How features are drawn: as an image, as a profile where they are in an order like hours, or one by one."""
        if self.image is not None:
            return "image"
        return "profile" if self.rows >= FEWEST_IN_PROFILE and _in_order(self.features) else "bars"


def _in_order(features: FeatureFigures) -> bool:
    """Whether names count up (h00, h01, …); features without names are taken to be in an order."""
    if not features.named:
        return True
    numbers = [_NUMBERED.fullmatch(name) for name in features.names]
    found = [int(one[1]) for one in numbers if one is not None]
    return len(found) == len(features.names) and all(a < b for a, b in pairwise(found))
