"""The local step of a site whose columns are dealt out to parts: what each part is asked, and how it is put together.

A part is a site of the method in small. Updates of `subspace`, and the counts of scaling, are sums over columns: every
part answers for itself. Local iterations of `gradient` go on from the slope of all columns, so each is one question.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dcfpca.rpca.gradient.method import GradientMethod
from dcfpca.rpca.gradient.objective import Penalties
from dcfpca.rpca.gradient.site import Fitted, GradientSite, local_answer
from dcfpca.rpca.method import Columns, FloatArray, Method, Parcel, Site
from dcfpca.rpca.scaling import SCALING_ROUNDS, ScaledColumns, ScaledMethod, ScaledSite, apart

Work = Callable[[Site], FloatArray]  # can be sent to another process


class Spread(Protocol):
    """The parts of a site, and how to ask all of them."""

    @property
    def columns(self) -> Columns:
        """The site's matrix, whole."""
        ...

    def total(self, work: Work) -> FloatArray:
        """The sum of what the parts answer, added in their order; each part keeps the state it is left in."""
        ...


def spread_answer(method: Method, spread: Spread, round: int, broadcast: Parcel) -> Parcel:
    """What the site answers, as if its columns were in one place."""
    scaled = isinstance(method, ScaledMethod)
    inner = method.inner if isinstance(method, ScaledMethod) else method
    if not isinstance(inner, GradientMethod) or (scaled and round < SCALING_ROUNDS):
        return Parcel.unflatten(method.update_layout(round), spread.total(Answer(round, broadcast)))
    if not scaled:
        return local_answer(_Across(spread, spread.columns), inner.settings, round, broadcast)
    inside, centre, scale = apart(broadcast, spread.columns.shape[0])
    work = _Across(spread, ScaledColumns(spread.columns, centre, scale), broadcast)
    return local_answer(work, inner.settings, round - SCALING_ROUNDS, inside)


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A part's own answer."""

    round: int
    broadcast: Parcel

    def __call__(self, site: Site) -> FloatArray:
        """Do the local step on the part."""
        return site.answer(self.round, self.broadcast).flat()


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A part's slope and VᵀV under this U."""

    U: FloatArray
    penalties: Penalties
    scaling: Parcel | None

    def __call__(self, site: Site) -> FloatArray:
        """One local iteration's pass over the part."""
        if isinstance(site, ScaledSite) and self.scaling is not None:
            site.enter(self.scaling)
            site = site.inner
        assert isinstance(site, GradientSite)
        fitted = site.fit(self.U, self.penalties)
        return np.concatenate([fitted.slope.ravel(), fitted.gram])


@dataclass(frozen=True, slots=True, eq=False)
class _Across:
    spread: Spread
    columns: Columns
    scaling: Parcel | None = None

    def fit(self, U: FloatArray, penalties: Penalties) -> Fitted:
        total = self.spread.total(Fit(U, penalties, self.scaling))
        return Fitted(total[: U.size].reshape(U.shape), total[U.size :])
