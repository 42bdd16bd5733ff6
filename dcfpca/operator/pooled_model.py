"""What a finished run found in the pooled data, as arrays and data frames."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.data_frames import optional_library
from dcfpca.operator.client import Operator
from dcfpca.operator.downloads import model_arrays
from dcfpca.operator.run_snapshots import RankError, Round, Verdict, rank_curve_of, round_of, verdict_of
from dcfpca.v1 import admin_pb2 as pb

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PooledModel:
    """The model of a finished run: U has a line for each feature, a column for each component.

    `features` is empty unless the spec named them; then lines go by number. With scaling U is in scaled units.
    """

    run_id: str
    verdict: Verdict | None
    U: FloatArray
    singular_values: FloatArray
    features: tuple[str, ...]
    rank_curve: tuple[RankError, ...]
    rounds: tuple[Round, ...]

    @property
    def rank(self) -> int:
        """The number of components."""
        return int(self.U.shape[1])

    def to_pandas(self) -> Any:
        """U as a pandas data frame: features by name or number, components from 1."""
        pandas = optional_library("pandas", "data frames")
        index = pandas.Index(self.features or range(self.U.shape[0]), name="feature")
        return pandas.DataFrame(self.U, index=index, columns=_components(self.rank))

    def rounds_frame(self) -> Any:
        """The rounds as a pandas data frame, by number."""
        pandas = optional_library("pandas", "data frames")
        return pandas.DataFrame([asdict(one) for one in self.rounds]).set_index("number")

    def rank_frame(self) -> Any:
        """The error on hidden entries as a pandas data frame, by rank."""
        pandas = optional_library("pandas", "data frames")
        columns = ["rank", "error", "standard_error"]
        return pandas.DataFrame([asdict(one) for one in self.rank_curve], columns=columns).set_index("rank")


def pooled_model(operator: Operator, view: pb.RunView) -> PooledModel:
    """Fetch the model of a finished run, whose view carries all rounds."""
    U, values = model_arrays(operator, view.run_id)
    return PooledModel(
        view.run_id,
        verdict_of(view),
        U,
        values,
        tuple(json.loads(view.spec or b"{}").get("features") or ()),
        rank_curve_of(view),
        tuple(round_of(one) for one in view.rounds),
    )


def _components(rank: int) -> list[str]:
    return [f"component {number}" for number in range(1, rank + 1)]
