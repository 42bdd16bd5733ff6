"""A method is a list of stages. This is the list, and a site that goes through it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadMessage
from dcfpca.rpca.column_blocks import ScaledColumns
from dcfpca.rpca.method import Columns, Consensus, FloatArray, Outcome, ResultBlock, TensorMessage, Total, Verdict
from dcfpca.rpca.refinement.hidden_entries import HiddenColumns
from dcfpca.rpca.stage import LocalFit, Partition, PartTask, Snapshot, Stage, View
from dcfpca.rpca.stage_checks import APART, same_gaps

LARGEST = 1e150
"""Entries of data are below 1e140, and singular values are not much larger."""
FIT = "fit/"  # of the fit's arrays in a snapshot
KEYS = "keys"  # of hidden entries
HIDING = b"dcfpca/hidden-entries"


class Solver(Protocol):
    """The part that fits: its settings, which its stages share, and the state that it keeps at a site."""

    @property
    def rows(self) -> int:
        """Features."""
        ...

    @property
    def width(self) -> int:
        """Directions that are exchanged: the rank, or an upper bound of it."""
        ...

    @property
    def reads_per_round(self) -> int:
        """The number of times a local step reads each column."""
        ...

    def step_flops(self, columns: int) -> float:
        """Operations in the matrix products of a local step over `columns` columns; a lower bound where a solve runs to
        its tolerance."""
        ...

    def local(self, columns: Columns) -> LocalFit:
        """The state with which a site that holds these columns begins."""
        ...


@dataclass(frozen=True, slots=True)
class Hiding:
    """The share of entries that a run hides from its fit, and the seed that decides which."""

    share: float
    seed: int


@dataclass(frozen=True, slots=True)
class Method:
    """A solver and the stages of its runs, in their order: both sides of every round. Pure, and made once per run."""

    solver: Solver
    stages: tuple[Stage, ...]
    scaled: bool = False  # whether the fit sees data in units that an earlier stage finds
    hiding: Hiding | None = None
    max_share: float = 1.0  # the most of all columns that one site's may count for in the sums that refine U
    min_cell: int = 1  # no count that leaves a site is about fewer entries than this
    _by_name: dict[str, Stage] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {stage.name: stage for stage in self.stages})

    def stage(self, name: str) -> Stage:
        """The stage of this name; BadMessage if the method has none."""
        if name not in self._by_name:
            raise BadMessage(f"the run has no stage {name[:40]!r}", "upgrade this site")
        return self._by_name[name]

    def begin(self) -> Consensus:
        """The consensus of round 0: nothing is known yet."""
        first = self.stages[0]
        return Consensus(0, first.name, first.down.zeros())

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The consensus after this round's sum; sets `outcome` when the run is over.

        A sum of true updates can be decomposed. One that cannot, because some updates were made up, ends the run.
        """
        try:
            after = self.stage(consensus.stage).advance(consensus, total)
        except np.linalg.LinAlgError:
            return replace(consensus, outcome=Outcome.DIVERGED)
        if after.stage == consensus.stage or after.broadcast.tensor.size + after.broadcast.scalars.size:
            return after
        return replace(after, broadcast=self.stage(after.stage).down.zeros())

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """Which law that every true sum keeps this one breaks; empty if none. Asked wherever a sum is opened."""
        return self.stage(consensus.stage).conserved(consensus, total)

    def plausible(self, announced: Consensus, before: Consensus | None, precision: int) -> str:
        """Why this broadcast cannot be true; empty if it is plausible. See `Stage.plausible`."""
        message = announced.broadcast
        if not (np.isfinite(message.tensor).all() and np.isfinite(message.scalars).all()):
            return "the consensus has numbers that are not finite"
        follows = before is not None and announced.round == before.round + 1
        if before is not None and follows and announced.stage not in self.stage(before.stage).then:
            return f"stage {announced.stage} does not follow stage {before.stage}"
        with np.errstate(over="ignore"):  # the square of a huge number is infinite, and beyond every limit
            if reason := self.stage(announced.stage).plausible(announced, before, precision):
                return reason
        if max(np.abs(message.tensor).max(initial=0.0), np.abs(message.scalars).max(initial=0.0)) > LARGEST:
            return "the consensus has numbers that cannot be squared, which no data gives"
        return ""

    def difference(self, expected: Consensus, announced: TensorMessage) -> float:
        """How far an announced broadcast is from the one that follows; up to 1 rounding explains it."""
        true = expected.broadcast
        if true.tensor.shape != announced.tensor.shape or true.scalars.shape != announced.scalars.shape:
            return APART
        if not (same_gaps(true.tensor, announced.tensor) and same_gaps(true.scalars, announced.scalars)):
            return APART
        try:
            with np.errstate(all="ignore"):  # differences that overflow are infinite
                apart = self.stage(expected.stage).difference(expected, announced)
        except (BadMessage, ValueError):  # not a broadcast of this stage
            return APART
        return APART if np.isnan(apart) else apart

    def keyed(self, key: bytes) -> Method:
        """The method as a site with this key carries it out: it draws the entries that it hides with this key, which
        nobody else knows, and not with the spec's seed. Whoever could derive these entries from a known record would
        find that record in the counts; see docs/threat-model.md."""
        if self.hiding is None or not key:
            return self
        drawn = hmac.digest(key, HIDING + self.hiding.seed.to_bytes(8, "big"), hashlib.sha256)
        return replace(self, hiding=replace(self.hiding, seed=int.from_bytes(drawn[:8], "big")))

    def view(self, columns: Columns) -> View:
        """These columns as stages see them before any broadcast has set their units."""
        rows = columns.shape[0]
        scaled = ScaledColumns(columns, np.zeros(rows), np.ones(rows)) if self.scaled else None
        if self.hiding is None:
            return View(columns, scaled, None)
        return View(columns, scaled, HiddenColumns(scaled or columns, self.hiding.share, self.hiding.seed))

    def site(self, columns: Columns) -> StagedSite:
        """The side of a participant that holds these columns."""
        return StagedSite(self, columns)

    def partitioned_answer(self, partition: Partition, announced: Consensus) -> TensorMessage:
        """The update of a site whose columns are split into parts: equals `StagedSite.answer` over all columns up to
        rounding."""
        stage, view = self.stage(announced.stage), self.view(partition.columns)
        asked = stage.prepare(view, announced)
        exact = stage.combine(PreparedPartition(partition, view.shown, announced), asked)
        return self.leaving(exact, asked, partition.columns.shape[1])

    def leaving(self, exact: TensorMessage, asked: Consensus, columns: int) -> TensorMessage:
        """What leaves a site with so many columns of its exact answer: small counts merged, and U formed from no more
        of its columns than they may count for."""
        stage = self.stage(asked.stage)
        sent = exact if self.min_cell == 1 else stage.merged(exact, asked, self.min_cell)
        weight = column_weight(columns, stage.all_columns(asked), self.max_share)
        return sent if weight == 1.0 else stage.weighted(sent, weight)

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """The model that the operator may fetch after the run: `U` (m × rank) and `singular_values`."""
        return self.stage(consensus.stage).model(consensus)

    def verdict(self, consensus: Consensus, features: Sequence[str] = ()) -> Verdict | None:
        """Whether the answer of a finished run can be trusted; None where no round of it could tell.

        Features are called by their numbers where no names are given.
        """
        return self.stage(consensus.stage).verdict(consensus, features)


def column_weight(own: int, of_all: float, most: float) -> float:
    """What each column of a site with `own` of all columns counts, so that together they are `most` of what counts;
    1 where they are no more, and where the site has no others beside it."""
    others = of_all - own
    if most >= 1.0 or others < 0.5:
        return 1.0
    return min(1.0, most / (1.0 - most) * others / max(own, 1))


class StagedSite:
    """A participant's side of a run. `fit` and `kept` hold what stages keep between rounds; nothing here leaves except
    what `answer` returns."""

    def __init__(self, method: Method, columns: Columns) -> None:
        self.method = method
        self.view = method.view(columns)
        self.fit = method.solver.local(self.view.shown)
        self.kept: dict[str, NDArray[np.generic]] = {}
        self.figures: dict[str, float] = {}

    def prepare(self, announced: Consensus) -> Consensus:
        """Show the columns as this round needs them, and give the consensus as its stage reads it."""
        return self.method.stage(announced.stage).prepare(self.view, announced)

    def answer(self, announced: Consensus) -> TensorMessage:
        """The update of this round as it leaves the site."""
        stage = self.method.stage(announced.stage)
        asked = stage.prepare(self.view, announced)
        return self.method.leaving(stage.answer(self, asked), asked, self.view.own.shape[1])

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """What stages keep, and what decides which entries are hidden; units come with every broadcast."""
        hidden = {} if self.view.hidden is None else {KEYS: self.view.hidden.keys}
        return {FIT + name: array for name, array in self.fit.snapshot().items()} | self.kept | hidden

    def restore(self, snapshot: Snapshot) -> None:
        """Take up an earlier snapshot."""
        self.fit.restore({name.removeprefix(FIT): array for name, array in snapshot.items() if name.startswith(FIT)})
        if self.view.hidden is not None:
            self.view.hidden.keys = np.array(snapshot[KEYS], dtype=np.uint64)
        self.kept = {name: np.array(array) for name, array in snapshot.items() if not name.startswith((FIT, KEYS))}

    def finish(self, announced: Consensus) -> Iterator[ResultBlock]:
        """The result under the final consensus, in column blocks. Leaves the state of the site as it was."""
        return self.method.stage(announced.stage).finish(self, self.prepare(announced))

    def certificate(self) -> dict[str, float]:
        """Figures of the last `finish` that was read to its end."""
        return dict(self.figures)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedPartition:
    """A partition for the stage that is asked: columns as it sees them, and parts prepared for the round."""

    partition: Partition
    columns: Columns
    announced: Consensus

    def total(self, task: PartTask) -> FloatArray:
        """The sum of what the prepared parts answer."""
        return self.partition.total(PreparedTask(self.announced, task))


@dataclass(frozen=True, slots=True, eq=False)
class PreparedTask:
    """Asks a part after it was prepared for the round."""

    announced: Consensus
    task: PartTask

    def __call__(self, site: StagedSite) -> FloatArray:
        """The part's answer."""
        site.prepare(self.announced)
        return self.task(site)
