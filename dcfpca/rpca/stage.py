"""One stage of a method: everything about the rounds of one kind.

A stage defines what is sent down and up, what a site answers, which of its counts are too small to leave it, what
follows from the sum, and the three checks by which sites and aggregator recognise false messages. All of these are
abstract: a stage that lacks one cannot be constructed, so no round passes unchecked because somebody forgot a check.

Nothing here depends on the number of a round: a stage that counts its own rounds does so in its broadcast. So any
stages can precede others, and a run that is restored from a backup can continue under another number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import ScaledColumns
from dcfpca.rpca.method import Columns, Consensus, FloatArray, Layout, ResultBlock, TensorMessage, Total, Verdict

if TYPE_CHECKING:
    from dcfpca.rpca.refinement.hidden_entries import HiddenColumns
    from dcfpca.rpca.stage_list import StagedSite

Snapshot = Mapping[str, NDArray[np.generic]]


class Resumable(Protocol):
    """A state that can be saved between rounds and restored."""

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """The local state as plain arrays, enough for `restore` to go on as if nothing had happened."""
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Restore an earlier `snapshot` of the same data and method."""
        ...

    def certificate(self) -> dict[str, float]:
        """Figures that certify the last result that was read to its end (optimality residual, share of outliers, …)."""
        ...


class LocalFit(Resumable, Protocol):
    """What a site keeps of the rounds that fit: V_i and what belongs to it. Nothing of it leaves the site."""

    def finish(self, broadcast: TensorMessage) -> Iterable[ResultBlock]:
        """The local result under this broadcast of a fit, in column blocks; the state stays as it was."""
        ...


class Site(Resumable, Protocol):
    """One participant's side of a run, whether its columns are worked on as a whole or in parts."""

    def answer(self, announced: Consensus) -> TensorMessage:
        """Do the local step of this round and return the update, of the layout that its stage declares."""
        ...

    def finish(self, announced: Consensus) -> Iterable[ResultBlock]:
        """The local result under the final consensus, in column blocks."""
        ...


PartTask = Callable[["StagedSite"], FloatArray]  # what one part of a site is asked; can be sent to another process


class Partition(Protocol):
    """A site's columns split into parts, each of which is a smaller site of the same method."""

    @property
    def columns(self) -> Columns:
        """The site's whole matrix."""
        ...

    def total(self, task: PartTask) -> FloatArray:
        """The sum of what the parts answer, added in their order; each part keeps the state it is left in."""
        ...


@dataclass(slots=True, eq=False)
class View:
    """A site's columns as stages see them: its own, in the units that a broadcast states, some entries hidden."""

    own: Columns
    scaled: ScaledColumns | None
    hidden: HiddenColumns | None

    @property
    def whole(self) -> Columns:
        """Nothing hidden."""
        return self.scaled or self.own

    @property
    def shown(self) -> Columns:
        """As the fit sees them."""
        return self.hidden or self.whole


class Stage(ABC):
    """The rounds of one kind. `then` names the stages that may follow a round of this one, itself among them if it has
    several. Pure and immutable: what changes is in the consensus, and at a site in `StagedSite`."""

    def __init__(self, name: str, *, down: Layout, up: Layout, then: Sequence[str] = ()) -> None:
        self.name, self.down, self.up, self.then = name, down, up, tuple(then)

    @abstractmethod
    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """The site's update, of layout `up`, to a consensus that went through `prepare`."""

    @abstractmethod
    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """The part of an exact answer that leaves the site: counts of fewer than `least` are merged into their
        neighbours."""

    def all_columns(self, asked: Consensus) -> float:
        """The columns of all sites together, where the broadcast tells them; else 0."""
        return 0.0

    def weighted(self, update: TensorMessage, weight: float) -> TensorMessage:
        """The update with this weight of the site's columns in the sums that refine U; most updates have no such sums.

        Updates of a fit have no weight either: its singular values are those of the sites' data, and with weights exact
        answers were lost where one site held 80 of 90 columns. The refinement starts from the U of the fit and gives
        each site its weight.
        """
        return update

    @abstractmethod
    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The consensus after this round's sum, which names the next stage; sets `outcome` when the run is over.

        A consensus for another stage may leave its broadcast empty: that stage then begins at zeros.
        """

    @abstractmethod
    def plausible(self, announced: Consensus, before: Consensus | None, precision: int) -> str:
        """Why this broadcast cannot be true where sums have this many bits; empty if it is plausible.

        `before` is the last consensus that the site answered. The site's own data takes no part: whoever may announce
        again after a refusal could learn about it.
        """

    @abstractmethod
    def difference(self, expected: Consensus, announced: TensorMessage) -> float:
        """How far an announced broadcast is from the one that follows, where 1 is the most that rounding explains:
        every feature and every direction in its own size. Infinite if something discrete differs."""

    @abstractmethod
    def conserved(self, consensus: Consensus, total: Total) -> str:
        """Which law that every true sum keeps this one breaks; empty if none."""

    def prepare(self, view: View, announced: Consensus) -> Consensus:
        """Show the columns as this round needs them, and give the consensus as `answer` and `finish` read it."""
        return announced

    def combine(self, partition: Partition, asked: Consensus) -> TensorMessage:
        """The update of a site in parts: equals `answer` over all columns up to rounding. Most updates are sums over
        columns, so that the parts' answers are added."""
        return TensorMessage.unflatten(self.up, partition.total(PartAnswer(asked)))

    def finish(self, site: StagedSite, asked: Consensus) -> Iterator[ResultBlock]:
        """The local result of a run that ends in this stage; unless a stage says otherwise, that of the fit."""
        yield from site.fit.finish(asked.broadcast)
        site.figures = site.fit.certificate()

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """The model that the operator may fetch after the run: `U` (m × rank) and `singular_values`."""
        raise BadInput(f"a run has no result in stage {self.name}")

    def verdict(self, consensus: Consensus, features: Sequence[str]) -> Verdict | None:
        """Whether the answer of a finished run can be trusted; None if no round of the run could show it."""
        return None


class QuietStage(Stage):
    """A stage whose broadcast is empty: nothing is announced that could be false or differ."""

    def __init__(self, name: str, *, up: Layout, then: str) -> None:
        super().__init__(name, down=Layout(0, 0), up=up, then=(then,))

    def plausible(self, announced: Consensus, before: Consensus | None, precision: int) -> str:
        """An empty broadcast is always plausible."""
        return ""

    def difference(self, expected: Consensus, announced: TensorMessage) -> float:
        """Two empty broadcasts do not differ."""
        return 0.0


class StageAround(Stage):
    """A stage that wraps another, and passes on whatever it does not override."""

    def __init__(self, inner: Stage, *, down: Layout | None = None, then: Sequence[str] = ()) -> None:
        super().__init__(inner.name, down=down or inner.down, up=inner.up, then=(*inner.then, *then))
        self.inner = inner

    def inside(self, consensus: Consensus) -> Consensus:
        """The consensus as the inner stage has it."""
        return consensus

    def prepare(self, view: View, announced: Consensus) -> Consensus:
        """As the inner stage does."""
        return self.inner.prepare(view, self.inside(announced))

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """The inner stage's."""
        return self.inner.answer(site, asked)

    def combine(self, partition: Partition, asked: Consensus) -> TensorMessage:
        """The inner stage's."""
        return self.inner.combine(partition, asked)

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """The inner stage's."""
        return self.inner.merged(exact, asked, least)

    def all_columns(self, asked: Consensus) -> float:
        """The inner stage's."""
        return self.inner.all_columns(asked)

    def weighted(self, update: TensorMessage, weight: float) -> TensorMessage:
        """The inner stage's."""
        return self.inner.weighted(update, weight)

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The inner stage's."""
        return self.inner.advance(self.inside(consensus), total)

    def plausible(self, announced: Consensus, before: Consensus | None, precision: int) -> str:
        """The inner stage's."""
        return self.inner.plausible(self.inside(announced), before and self.inside(before), precision)

    def difference(self, expected: Consensus, announced: TensorMessage) -> float:
        """The inner stage's."""
        other = self.inside(replace(expected, broadcast=announced))
        return self.inner.difference(self.inside(expected), other.broadcast)

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """The inner stage's."""
        return self.inner.conserved(self.inside(consensus), total)

    def finish(self, site: StagedSite, asked: Consensus) -> Iterator[ResultBlock]:
        """The inner stage's."""
        return self.inner.finish(site, asked)

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """The inner stage's."""
        return self.inner.model(self.inside(consensus))

    def verdict(self, consensus: Consensus, features: Sequence[str]) -> Verdict | None:
        """The inner stage's."""
        return self.inner.verdict(self.inside(consensus), features)


@dataclass(frozen=True, slots=True, eq=False)
class PartAnswer:
    """Asks a part, prepared for the round, for its own answer."""

    asked: Consensus

    def __call__(self, site: StagedSite) -> FloatArray:
        """The part's answer as one vector."""
        return site.method.stage(self.asked.stage).answer(site, self.asked).flat()
