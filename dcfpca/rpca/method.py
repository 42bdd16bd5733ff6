"""The interface between a site and the aggregator, for every method.

A run is a sequence of rounds. Round 0 is the opening exchange: scalars only, from which both sides
learn the totals they need (the number of columns, a scale). Rounds 1, 2, … exchange one tensor each way.

Two rules keep the rooms apart. Everything that leaves a site in a round is one `TensorMessage` whose `Layout`
both sides know beforehand from the method alone. Everything the aggregator may use is a `Total`: the sum
of the updates of those who answered, and how many they were. A method that needs more than sums does not
fit this system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Layout:
    """The declared shape of a message: a rows × columns tensor, then scalars in this order, by name.

    With an `exponent` the method promises that every number is below 2^exponent, whatever the data.
    """

    rows: int
    columns: int
    scalars: tuple[str, ...] = ()
    exponent: int | None = None

    @property
    def size(self) -> int:
        """The number of float64 values in the message."""
        return self.rows * self.columns + len(self.scalars)


@dataclass(frozen=True, slots=True, eq=False)
class TensorMessage:
    """A tensor and its accompanying scalars; a broadcast, an update and a sum all have this form."""

    tensor: FloatArray = field(repr=False)
    scalars: FloatArray = field(repr=False)

    def flat(self) -> FloatArray:
        """A new contiguous vector: the tensor in row-major order, then the scalars."""
        return np.concatenate([self.tensor.ravel(), self.scalars])

    @staticmethod
    def unflatten(layout: Layout, vector: FloatArray) -> TensorMessage:
        """Inverse of `flat` for a message of this layout, as views of the vector."""
        cut = layout.rows * layout.columns
        return TensorMessage(vector[:cut].reshape(layout.rows, layout.columns), vector[cut:])


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """The sum of the updates of one round, and over how many participants it was taken."""

    sums: TensorMessage
    contributors: int


class Stage(IntEnum):
    """What the rounds of a run are about. Layouts follow from the round's number and its stage."""

    FIT = 0  # the rounds of the method proper; a method without closing rounds has no others
    REFINE = 1  # noise per feature, and the subspace under fixed noise
    VALIDATE = 2  # how well hidden entries are predicted, rank by rank
    NULL = 3  # sizes of residuals per feature, against which flags and scores are judged


class Outcome(Enum):
    """The outcome of a run of the method. The value is the sentence to show."""

    CONVERGED = "converged: more rounds would change the answer by less than the tolerance or the noise"
    OUT_OF_ROUNDS = "stopped at the round limit before reaching the tolerance"
    COMPLETED = "complete: every round of the schedule was taken"
    DIVERGED = "diverged: the consensus is no longer finite; lower the learning rate"


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """Figures of a round that follow from the sum alone. NaN where a method has no such figure."""

    change: float = float("nan")
    rank: int = 0
    noise: float = float("nan")
    threshold: float = float("nan")
    singular_values: FloatArray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True)
class Verdict:
    """`sound` is whether nothing speaks against the answer; `sentence` says what was found either way. `notes` say of
    features what a reader should know, and do not speak against the answer."""

    sound: bool
    sentence: str
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Consensus:
    """The aggregator's state at the start of `round`: the broadcast that sites answer, and the method's memory.

    `memory` is the method's own, never sent. With an `outcome` the run is over, `round` is the last round
    that was summed, and the broadcast is the final one, from which each site forms its result.
    """

    round: int
    broadcast: TensorMessage
    memory: Mapping[str, FloatArray] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)
    outcome: Outcome | None = None
    stage: Stage = Stage.FIT


@dataclass(frozen=True, slots=True, eq=False)
class ColumnScores:
    """How odd columns are, against the null of a run; one number per column each."""

    p_value: FloatArray  # of the column: its residuals and its place within the subspace together
    largest_z: FloatArray  # the largest |z| of its entries
    distance: FloatArray  # T², the squared distance from the centre within the subspace


@dataclass(frozen=True, slots=True, eq=False)
class ResultBlock:
    """The result for the site's columns start … start + L.shape[1] − 1; scores where the method has a null."""

    start: int
    L: FloatArray
    S: scipy.sparse.csc_array
    V: FloatArray
    scores: ColumnScores | None = None


class Columns(Protocol):
    """A site's matrix M_i, m × n_i, read in column blocks so that it need not fit in memory. NaN is unobserved."""

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        ...

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1 as an m × (stop − start) array; the caller does not write into it."""
        ...


class Site(Protocol):
    """One participant's side of a method. Holds V_i and S_i; nothing here leaves except what `answer` returns."""

    def answer(self, round: int, broadcast: TensorMessage) -> TensorMessage:
        """Do the local step of this round and return the update, of the layout that the method declares for the round
        and its stage; the stage can be told from the broadcast."""
        ...

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """The local state as plain arrays, enough for `restore` to go on as if nothing had happened."""
        ...

    def restore(self, snapshot: Mapping[str, NDArray[np.generic]]) -> None:
        """Restore an earlier `snapshot` of the same data and method."""
        ...

    def finish(self, broadcast: TensorMessage) -> Iterable[ResultBlock]:
        """The local result under the final broadcast, in column blocks."""
        ...

    def certificate(self) -> dict[str, float]:
        """Figures that certify the local result (optimality residual, share of outliers, …)."""
        ...


PartTask = Callable[[Site], FloatArray]  # what one part of a partitioned site is asked; can be sent to another process


class Partition(Protocol):
    """A site's columns split into parts, each of which is a smaller site of the same method."""

    @property
    def columns(self) -> Columns:
        """The site's whole matrix."""
        ...

    def total(self, task: PartTask) -> FloatArray:
        """The sum of what the parts answer, added in their order; each part keeps the state it is left in."""
        ...


class Method(Protocol):
    """The aggregator's side of a method, and the factory of the sites' side. Pure."""

    @property
    def opening_rounds(self) -> int:
        """The last round whose number decides what sites do in it; the rounds after it are all alike."""
        ...

    @property
    def reads_per_round(self) -> int:
        """The number of times a local step reads each column."""
        ...

    def step_flops(self, columns: int) -> float:
        """Operations in the matrix products of a local step over `columns` columns; a lower bound where a solve runs to
        its tolerance."""
        ...

    def update_layout(self, round: int, stage: Stage = Stage.FIT) -> Layout:
        """What every site sends in this round of this stage; known without any data."""
        ...

    def broadcast_layout(self, round: int, stage: Stage = Stage.FIT) -> Layout:
        """What the aggregator sends at the start of this round (with the last stage: the final broadcast)."""
        ...

    def begin(self) -> Consensus:
        """The consensus of round 0."""
        ...

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The consensus after this round's sum; sets `outcome` when the run is over."""
        ...

    def site(self, columns: Columns) -> Site:
        """The side of a participant that holds these columns."""
        ...

    def partitioned_answer(self, partition: Partition, round: int, broadcast: TensorMessage) -> TensorMessage:
        """The update of a site whose columns are split into parts: equals `Site.answer` over all columns up to
        rounding."""
        ...

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """The model that the operator may fetch after the run: `U` (m × rank) and `singular_values`."""
        ...

    def verdict(self, consensus: Consensus) -> Verdict | None:
        """Whether the answer of a finished run can be trusted; None where no closing round could tell."""
        ...
