"""`subspace`: federated orthogonal iteration with firm thresholds (docs/solver.md), and its stage `open`.

The opening counts columns and entry sizes, which give the scale and the first threshold. Every round after it the sites
send Z = Σ Y V̂, the cleaned data times the (scaled) right factor of the last subspace. From this sum alone the
aggregator computes the next subspace and the singular values of the cleaned data, and from counts of residual sizes the
noise. Nothing here depends on how the columns are split over sites.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.initial_basis import WARM, opening_basis, warm_mark
from dcfpca.rpca.kernels.numpy_loops import histogram_quantile
from dcfpca.rpca.method import Columns, Consensus, Layout, Progress, TensorMessage, Total
from dcfpca.rpca.small_cells import merge_cells
from dcfpca.rpca.stage import QuietStage
from dcfpca.rpca.stage_checks import broken_count, exceeds
from dcfpca.rpca.stage_list import StagedSite
from dcfpca.rpca.subspace.rank_rules import RankRules
from dcfpca.rpca.subspace.round_plan import CoefficientStart, State
from dcfpca.rpca.subspace.schedule import opening_schedule
from dcfpca.rpca.subspace.settings import OPENING_BINS, OPENING_LOWEST, OPENING_STEP, SubspaceSettings
from dcfpca.rpca.subspace.site import SubspaceFit
from dcfpca.rpca.thresholds import NORMAL_MEDIAN


@dataclass(frozen=True, slots=True)
class SubspaceSolver:
    """`fixed_rank`: the rank is `width`; otherwise `width` is an upper bound and the rank is found."""

    rows: int
    width: int
    rounds: int
    tolerance: float
    seed: int = 0
    settings: SubspaceSettings = field(default_factory=SubspaceSettings)
    fixed_rank: bool = True
    rules: RankRules = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", RankRules(self.rows, self.width, self.fixed_rank, self.settings))
        if not 1 <= self.width <= self.rows:
            raise BadInput(f"Rank {self.width} does not fit {self.rows} rows.", f"Choose a rank from 1 to {self.rows}.")
        if self.rounds < 1 or not self.tolerance >= 0.0:
            raise BadInput("A run needs at least one round and a tolerance that is not negative.")

    @property
    def reads_per_round(self) -> int:
        """All passes are made on a block while it is in cache."""
        return 1

    def step_flops(self, columns: int) -> float:
        """A pass forms U Vᵀ and ψ(R)ᵀU; the update is one more product."""
        return 2.0 * self.rows * self.width * columns * (2 * self.settings.passes + 1)

    def local(self, columns: Columns) -> SubspaceFit:
        """What a site that holds these columns begins with."""
        return SubspaceFit(columns, self.rows, self.width, self.seed, self.settings)


OPEN = "open"


class SubspaceOpening(QuietStage):
    """One round of scalars alone, before stage `then`."""

    def __init__(self, solver: SubspaceSolver, then: str) -> None:
        super().__init__(OPEN, up=Layout(0, 0, 1 + OPENING_BINS), then=then)
        self._solver = solver

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """The number of columns, and counts of entry sizes by powers of two."""
        assert isinstance(site.fit, SubspaceFit)
        return site.fit.opening()

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """Sizes with small cells merged."""
        count, sizes = np.split(exact.scalars, [1])
        return TensorMessage(exact.tensor, np.concatenate([count, merge_cells(sizes[None, :], least)[0]]))

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """A scale, the first threshold, and a subspace to begin with."""
        solver, settings = self._solver, self._solver.settings
        count, *sizes = total.sums.scalars
        if solver.fixed_rank and solver.width > round(count):
            raise BadInput(
                f"Rank {solver.width} does not fit {count:.0f} columns.", f"Choose a rank from 1 to {count:.0f}."
            )
        median = histogram_quantile(0.5, np.array(sizes), 1.0, OPENING_LOWEST, OPENING_STEP)
        schedule = opening_schedule(NORMAL_MEDIAN * median, count, solver.width, settings)
        U = opening_basis(solver.rows, solver.width, solver.seed, consensus.memory)
        values = np.full(solver.width, schedule.unit * np.sqrt(max(count, 1.0)))
        start = CoefficientStart.PROJECTED if WARM in consensus.memory else CoefficientStart.CARRIED
        state = State(U, np.ones(solver.width), values, schedule)
        return Consensus(
            consensus.round + 1,
            self.then[0],
            state.plan(start, settings).broadcast(),
            {**consensus.memory, **state.memory(), **warm_mark(consensus.memory)},
            Progress(rank=solver.width, noise=schedule.noise),
        )

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """Every site has a column, and an entry is in one bin at most."""
        (count, *sizes), rounding = total.sums.scalars, total.rounding[1]
        if reason := broken_count(total.sums.scalars, rounding, what="a count of columns or entries"):
            return reason
        if exceeds(total.contributors, count, rounding):
            return "there are fewer columns than sites"
        entries = count * min(self._solver.rows, self._solver.settings.sampled_rows)
        return (
            "more entries are counted than there are" if exceeds(sum(sizes), entries, OPENING_BINS * rounding) else ""
        )
