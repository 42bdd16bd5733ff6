"""A private run in one process, with the noise that sites add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dcfpca.privacy.discrete_gaussian import Entropy
from dcfpca.rpca.method import Columns, Consensus, TensorMessage, Total
from dcfpca.rpca.private.grid import noised
from dcfpca.rpca.private.method import PrivateSubspaceMethod
from dcfpca.rpca.private.site import PrivateSite


@dataclass(frozen=True, slots=True)
class NoisySum:
    """Answers of sites, noised as by a service and added. `silent` sites, the first ones, add no noise."""

    method: PrivateSubspaceMethod
    entropy: Entropy
    silent: int = 0

    def of(self, consensus: Consensus, sites: Sequence[PrivateSite]) -> Total:
        """The opened sum of a round; sums on the grid are exact in any order."""
        layout, round = self.method.update_layout(consensus.round), consensus.round
        deviation, honest = self.method.schedule.deviation(round), len(sites) - self.method.conspirators
        total = None
        for index, site in enumerate(sites):
            exact = site.answer(round, consensus.broadcast).flat()
            sent = exact if index < self.silent else noised(exact, deviation, honest, self.entropy)
            total = sent if total is None else total + sent
        assert total is not None
        return Total(TensorMessage.unflatten(layout, total), len(sites))


def simulate_private(method: PrivateSubspaceMethod, columns: Sequence[Columns], entropy: Entropy) -> Consensus:
    """The final consensus of a whole private run over these sites."""
    sites, consensus, sums = [method.site(own) for own in columns], method.begin(), NoisySum(method, entropy)
    while consensus.outcome is None:
        consensus = method.advance(consensus, sums.of(consensus, sites))
    return consensus
