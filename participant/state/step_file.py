"""The file of a local step: the update, the site's state, and the consensus that they were computed on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dcfpca.atomic_files import atomic_write
from dcfpca.rpca.method import FloatArray, Stage
from participant.state.array_file import read_arrays, write_arrays

_SITE = "site."


@dataclass(frozen=True, slots=True, eq=False)
class LocalStep:
    """The outcome of a local step: the update, the state from which the site computes the next step, and the consensus
    that the step was computed on, as one vector."""

    round: int
    consensus: bytes
    vector: FloatArray = field(repr=False)
    snapshot: Mapping[str, NDArray[np.generic]] = field(repr=False)
    broadcast: FloatArray = field(repr=False, default_factory=lambda: np.zeros(0))
    stage: Stage = Stage.FIT


def step_file(run_id: str, round: int | str) -> str:
    """The name of the file in the state directory; with "*" for the round, a pattern for all files of the run."""
    return f"run-{run_id}-{round}.step"


def write_step(path: Path, step: LocalStep) -> int:
    """Write the file atomically and return its checksum."""
    arrays = {f"{_SITE}{key}": value for key, value in step.snapshot.items()} | {
        "update": step.vector,
        "broadcast": step.broadcast,
        "stage": np.array([float(step.stage)]),
    }
    return atomic_write(path, lambda file: write_arrays(file, arrays))


def read_step(path: Path, checksum: int, round: int, consensus: bytes) -> LocalStep:
    """The step in this file, memory-mapped; BadInput when the file is damaged. Older files lack consensus and stage."""
    arrays = read_arrays(path, checksum)
    vector, broadcast = arrays.pop("update"), arrays.pop("broadcast", np.zeros(0))
    stage = Stage(int(arrays.pop("stage", np.zeros(1))[0]))
    snapshot = {key.removeprefix(_SITE): arrays[key] for key in arrays}
    return LocalStep(round, consensus, vector, snapshot, broadcast, stage)
