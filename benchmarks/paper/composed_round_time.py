"""The time of a round by the number of sites, composed from what `benchmarks.paper.costs` measures apart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paper.plotting import SEQUENCE, save, sheet


@dataclass(frozen=True, slots=True)
class Exchange:
    """Seconds of an exchange with E sites: fixed + each · E."""

    fixed: float
    each: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds of a round by E at fixed n: measured site and aggregator, and the exchange. `best` is the model's E."""

    method: str
    columns: int
    sites: tuple[int, ...]
    seconds: tuple[float, ...]
    best: float

    @property
    def lowest(self) -> int:
        """The E of the shortest round among those composed."""
        return self.sites[int(np.argmin(self.seconds))]


def exchange_of(runs: list[Any], aggregation: str) -> Exchange:
    """A line through the measured rounds of this kind."""
    own = [run for run in runs if run.aggregation == aggregation]
    each, fixed = np.polyfit([run.participants for run in own], [run.median_round_s for run in own], 1)
    return Exchange(float(fixed), float(each))


def curves(steps: list[Any], exchange: Exchange) -> list[Curve]:
    """One per method and n. The model is c₀ + c₁/E for the site, so that the best E is √(c₁/each)."""
    keys = dict.fromkeys((step.method, step.columns) for step in steps)
    found = []
    for method, columns in keys:
        own = [step for step in steps if (step.method, step.columns) == (method, columns)]
        E = np.array([step.sites for step in own])
        site = np.array([step.site_seconds for step in own])
        server = np.array([step.aggregator_seconds for step in own])
        slope = float(np.polyfit(1.0 / E, site, 1)[0])
        total = site + server + exchange.fixed + exchange.each * E
        best = float(np.sqrt(max(slope, 0.0) / exchange.each))
        found.append(Curve(method, columns, tuple(E.tolist()), tuple(total.tolist()), best))
    return found


def exponent(found: list[Curve]) -> float:
    """x where the best E grows as n^x; the paper says ½."""
    return float(np.polyfit(np.log([one.columns for one in found]), np.log([one.best for one in found]), 1)[0])


def draw(found: list[Curve], stem: Path) -> None:
    """Seconds of a round by E, a star at the model's best E."""
    methods = list(dict.fromkeys(one.method for one in found))
    picture, grid = sheet(1, len(methods), 5.0, 3.4)
    for place, method in zip(grid[0], methods, strict=True):
        for one, colour in zip([one for one in found if one.method == method], SEQUENCE, strict=False):
            place.loglog(one.sites, one.seconds, "o-", ms=4, color=colour, label=f"n = {one.columns}")
            place.axvline(one.best, color=colour, ls=":", lw=1)
        place.set_title(f"{method}: seconds of a round (dotted: best E of the model)", fontsize=9)
        place.set_xlabel("sites E")
        place.legend(fontsize=7)
    save(picture, stem)
