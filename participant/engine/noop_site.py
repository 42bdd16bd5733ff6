"""A site that computes nothing: every update is zero. `dcfpca bench rounds` uses it to measure communication alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.method import Columns, Method, ResultBlock, TensorMessage


class IdleSite:
    """Answers immediately with zeros in the declared layout."""

    def __init__(self, method: Method, columns: Columns) -> None:
        self._method = method
        self._shape = columns.shape

    def answer(self, round: int, broadcast: TensorMessage) -> TensorMessage:
        """Zeros; in round 0 counts that are large enough for any rank, because a run without columns would fail."""
        layout = self._method.update_layout(round)
        scalars = np.full(len(layout.scalars), float(self._shape[0]) if round == 0 else 0.0)
        return TensorMessage(np.zeros((layout.rows, layout.columns)), scalars)

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """Nothing to keep."""
        return {}

    def restore(self, snapshot: Mapping[str, NDArray[np.generic]]) -> None:
        """Nothing to restore."""

    def finish(self, broadcast: TensorMessage) -> Iterator[ResultBlock]:
        """An empty result of the right shape."""
        width = broadcast.tensor.shape[1]
        yield ResultBlock(
            0, np.zeros(self._shape), scipy.sparse.csc_array(self._shape), np.zeros((self._shape[1], width))
        )

    def certificate(self) -> dict[str, float]:
        """No figures."""
        return {}
