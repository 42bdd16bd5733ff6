"""What a method has of another whose rounds come after some of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dcfpca.rpca.method import Consensus, Method, TensorMessage


@dataclass(frozen=True, slots=True)
class PrecededMethod:
    """Another method, after `own_rounds` that read the data once each. Its round j is round j + own_rounds here."""

    own_rounds: ClassVar[int]
    inner: Method

    @property
    def opening_rounds(self) -> int:
        """The own rounds, then the inner method's opening."""
        return self.own_rounds + self.inner.opening_rounds

    @property
    def reads_per_round(self) -> int:
        """As often as the inner method."""
        return self.inner.reads_per_round

    def step_flops(self, columns: int) -> float:
        """The operations of the inner method's rounds."""
        return self.inner.step_flops(columns)

    def begin(self) -> Consensus:
        """The consensus of round 0: nothing is known yet."""
        return Consensus(0, TensorMessage(np.zeros((0, 0)), np.zeros(0)))
