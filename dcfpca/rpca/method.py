"""What sites and the aggregator exchange and keep, whatever the method.

Two rules keep the packages apart. Everything that leaves a site in a round is one `TensorMessage` whose `Layout` both
sides know beforehand from the stage alone. Everything the aggregator may use is a `Total`: the sum of the updates of
those who answered, and how many they were. A method that needs more than sums cannot run here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
# Early rounds are worked in single precision: what they are about is far above its rounding.
WorkArray = NDArray[Any]


class Kind(Enum):
    """What the numbers of a block are. This decides how large they may be when they are summed in fixed point."""

    COUNT = "whole numbers of columns or entries"
    SCALE = "in the unit of the data, and wanted to many digits"
    TENSOR = "of order one, but for directions that few columns have"
    SHARE = "shares and figures of order one"


@dataclass(frozen=True, slots=True)
class Layout:
    """The declared shape of a message: a rows × columns tensor, then so many scalars.

    `kinds` says what the numbers are, block by block, where it is not what the shape tells: counts, or a tensor with
    shares beside it. With an `exponent` the stage promises that every number is below 2^exponent, whatever the data.
    """

    rows: int
    columns: int
    scalars: int = 0
    kinds: tuple[tuple[int, Kind], ...] = ()
    exponent: int | None = None
    size: int = field(init=False, repr=False, compare=False)  # how many numbers the message has

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.rows * self.columns + self.scalars)

    @property
    def blocks(self) -> tuple[tuple[int, Kind], ...]:
        """The numbers in order, as blocks of one kind each.

        Scalars beside a tensor are one block: a bin of a histogram that was empty for rounds may fill in the next one,
        and must find room.
        """
        tensor = self.rows * self.columns
        if self.kinds:
            return self.kinds
        if tensor and self.scalars:
            return (tensor, Kind.TENSOR), (self.scalars, Kind.SHARE)
        return ((self.size, Kind.COUNT),) if self.size else ()

    def zeros(self) -> TensorMessage:
        """A message of this shape that says nothing."""
        return TensorMessage(np.zeros((self.rows, self.columns)), np.zeros(self.scalars))


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
    """The sum of the updates of one round, and over how many participants it was taken.

    `rounding` bounds how far each number of the tensor and of the scalars is off because updates were rounded to fixed
    point. `whole` says that every sum of the run is over the same participants, so that counts stay what they were.
    """

    sums: TensorMessage
    contributors: int
    rounding: tuple[float, float] = (0.0, 0.0)
    whole: bool = True


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
    singular_values: FloatArray = field(default_factory=partial(np.zeros, 0))


@dataclass(frozen=True, slots=True)
class Verdict:
    """`sound` means that there is no reason to doubt the answer; `sentence` says what was found either way. `notes` say
    what a reader should know about features; they are no reason for doubt. `checked` means that the run has shown it: a
    resample of its own fit flags no more than the run states, or the split is exact and unique. `changes` are keys of
    the spec, as key=value, with which a run like it would have no reason that these name."""

    sound: bool
    sentence: str
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    checked: bool = False
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Consensus:
    """The state of a run at the start of `round`: its stage, the broadcast that sites answer, and the stages' memory.

    The rounds of a run are counted through, whatever their stages. `memory` is the aggregator's; as sites are told it,
    a consensus has none. With an `outcome` the run is over, `round` is the last round that was summed, and the
    broadcast, of the layout of `stage`, is the final one, from which each site forms its result.
    """

    round: int
    stage: str
    broadcast: TensorMessage
    memory: Mapping[str, FloatArray] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ColumnScores:
    """How odd columns are by the null of a run, with one number per column each."""

    p_value: FloatArray  # of the column: its residuals and its place within the subspace together
    largest_z: FloatArray  # the largest |z| of its entries
    distance: FloatArray  # T², the squared distance from the centre within the subspace


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """The flagged entries of a block, in the order of S: what the other entries of their sample say they should be, how
    far off they are, and how rare that is."""

    expected: FloatArray
    z: FloatArray  # in units of the feature, on the side of the entry
    exceeded_by: FloatArray  # at most this many entries of the feature, at all sites, are further off; NaN: many
    values: FloatArray  # of this many entries of the feature at all sites
    consortium_z: FloatArray  # the same as z, from what all sites share alone: small where only this site finds it odd


@dataclass(frozen=True, slots=True)
class Instrument:
    """A feature that repeats one value (`amount`) at neighbouring samples of a site, or drifts, by `amount` from the
    first of them to the last."""

    feature: int
    kind: str  # stuck or drift
    first: int  # the columns it concerns, in the order of the site
    last: int
    samples: int  # how many of them have the feature
    amount: float


@dataclass(frozen=True, slots=True, eq=False)
class ScannedBlock:
    """What a block of columns says about its site's instruments: entries (m × n), and for each feature sums over its
    deviations (y) and their places (x, counted from the block's first column)."""

    entries: FloatArray
    trend: FloatArray  # 5 × m: Σ1, Σx, Σx², Σy, Σxy
    squares: FloatArray  # m: Σy²
    ends: FloatArray  # 2 × m: the first and the last place
    deviation: FloatArray  # m: of the feature, in the unit of the entries
    centre: FloatArray | float = 0.0  # of the data, in its own unit …
    scale: FloatArray | float = 1.0  # … and what one unit of the entries is there


@dataclass(frozen=True, slots=True, eq=False)
class ResultBlock:
    """The result for the site's columns start … start + L.shape[1] − 1; scores where the method has a null, findings
    where it flags by it. `usual_here` counts by feature the entries above and below what is expected that are unusual
    for the consortium and usual at the site. `scanned` is what the site's instruments are judged by, which takes all
    blocks."""

    start: int
    L: FloatArray
    S: scipy.sparse.csc_array
    V: FloatArray
    scores: ColumnScores | None = None
    findings: Findings | None = None
    scanned: ScannedBlock | None = None
    usual_here: FloatArray | None = None  # m × 2


class Columns(Protocol):
    """A site's matrix M_i, m × n_i, read in column blocks so that it need not fit in memory. NaN is unobserved."""

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        ...

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1 as an m × (stop − start) array; the caller does not write into it."""
        ...
