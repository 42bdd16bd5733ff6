"""A whole run in one process: every site and the aggregator, without the network between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from dcfpca.errors import BadMessage
from dcfpca.privacy.discrete_gaussian import Entropy
from dcfpca.rpca.calibration.instruments import InstrumentScan
from dcfpca.rpca.column_blocks import check_entries
from dcfpca.rpca.kernels.order_independent_sum import OrderIndependentSum
from dcfpca.rpca.method import (
    Columns,
    Consensus,
    FloatArray,
    Instrument,
    Layout,
    Progress,
    ResultBlock,
    TensorMessage,
    Total,
)
from dcfpca.rpca.private.stages import NUMBERS, PrivateSolver
from dcfpca.rpca.private.whole_numbers import noised
from dcfpca.rpca.stage import Site
from dcfpca.rpca.stage_list import Method

Observe = Callable[[Consensus, Sequence[Site]], None]


@dataclass(frozen=True, slots=True, eq=False)
class SiteResult:
    """What one site has at the end: L_i and S_i (m × n_i), V_i (n_i × width), the figures to judge them by, and how odd
    its columns and which of its instruments fail where the method has a null."""

    L: FloatArray
    S: sparse.csc_array
    V: FloatArray
    certificate: dict[str, float]
    p_values: FloatArray = field(default_factory=lambda: np.zeros(0))
    instruments: tuple[Instrument, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """A finished run: the last consensus, every site's result in participant order, one `Progress` per round."""

    consensus: Consensus
    results: tuple[SiteResult, ...]
    history: tuple[Progress, ...]

    @property
    def low_rank(self) -> FloatArray:
        """All sites' L_i side by side."""
        return np.concatenate([result.L for result in self.results], axis=1)

    @property
    def outliers(self) -> sparse.csc_array:
        """All sites' S_i side by side."""
        return sparse.csc_array(sparse.hstack([result.S for result in self.results], format="csc"))


def simulate(
    method: Method, columns: Sequence[Columns], observe: Observe | None = None, keys: Sequence[bytes] = ()
) -> Simulation:
    """Run the method over these sites until it has an outcome. Raises BadInput for data that `check_entries` refuses.

    `observe` is called after every round with the new consensus and the sites; it may call `finish` on them, which does
    not disturb the run. With the `keys` of real sites, each site hides the entries that it would hide in a real run.
    """
    for own in columns:
        check_entries(own)
    sites = [method.keyed(key).site(own) for own, key in zip(columns, keys or [b""] * len(columns), strict=True)]
    consensus = method.begin()
    history = []
    while consensus.outcome is None:
        consensus = method.advance(consensus, exchange(method, consensus, sites))
        if not np.isfinite(consensus.broadcast.flat()).all():
            # Sites check it when it arrives: a simulation must not go on where a run would end.
            raise BadMessage(f"the broadcast of stage {consensus.stage} holds numbers that are not finite")
        history.append(consensus.progress)
        if observe is not None:
            observe(consensus, sites)
    results = tuple(collect(site, consensus) for site in sites)
    return Simulation(consensus, results, tuple(history))


def exchange(method: Method, consensus: Consensus, sites: Sequence[Site]) -> Total:
    """One round: every site answers the broadcast, and the updates are added as the aggregator adds them."""
    layout = method.stage(consensus.stage).up
    running = OrderIndependentSum(layout.size)
    for site in sites:
        update = _checked(site.answer(consensus), layout)
        running.add(update.tensor.ravel())
        running.add(update.scalars, update.tensor.size)
    return Total(TensorMessage.unflatten(layout, running.total()), len(sites))


def collect(site: Site, final: Consensus) -> SiteResult:
    """A site's result under this consensus, put together from its blocks."""
    parts = list(site.finish(final))
    scan = InstrumentScan(len(parts[0].L))
    for part in parts:
        scan.add(part.start, part.scanned)
    certificate, p_values, instruments = site.certificate(), _p_values(parts), scan.found()
    if len(parts) == 1:
        return SiteResult(parts[0].L, parts[0].S, parts[0].V, certificate, p_values, instruments)
    return SiteResult(
        L=np.concatenate([part.L for part in parts], axis=1),
        S=sparse.csc_array(sparse.hstack([part.S for part in parts], format="csc")),
        V=np.concatenate([part.V for part in parts], axis=0),
        certificate=certificate,
        p_values=p_values,
        instruments=instruments,
    )


def _p_values(parts: Sequence[ResultBlock]) -> FloatArray:
    scores = [part.scores for part in parts]
    return np.concatenate([score.p_value for score in scores if score is not None] or [np.zeros(0)])


def _checked(update: TensorMessage, layout: Layout) -> TensorMessage:
    declared = ((layout.rows, layout.columns), (layout.scalars,))
    if (update.tensor.shape, update.scalars.shape) != declared:
        raise BadMessage(f"An update has shapes {update.tensor.shape} and {update.scalars.shape}, not {declared}.")
    return update


@dataclass(frozen=True, slots=True)
class NoisySum:
    """Answers of sites, with the noise that a service adds, and summed. The first `silent` sites add no noise."""

    method: Method
    entropy: Entropy
    silent: int = 0

    def of(self, consensus: Consensus, sites: Sequence[Site]) -> Total:
        """The opened sum of a round; sums on the grid are exact in any order."""
        layout, solver = self.method.stage(consensus.stage).up, self.method.solver
        assert isinstance(solver, PrivateSolver)
        deviation, honest = solver.schedule.deviation(NUMBERS[consensus.stage]), len(sites) - solver.conspirators
        total = None
        for index, site in enumerate(sites):
            exact = site.answer(consensus).flat()
            sent = exact if index < self.silent else noised(exact, deviation, honest, self.entropy)
            total = sent if total is None else total + sent
        assert total is not None
        return Total(TensorMessage.unflatten(layout, total), len(sites))


def simulate_private(method: Method, columns: Sequence[Columns], entropy: Entropy) -> Consensus:
    """The final consensus of a whole private run over these sites."""
    sites, consensus, sums = [method.site(own) for own in columns], method.begin(), NoisySum(method, entropy)
    while consensus.outcome is None:
        consensus = method.advance(consensus, sums.of(consensus, sites))
    return consensus
