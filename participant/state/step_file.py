"""The file of a local step: the update, the site's state, and the consensus that they were computed on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput
from dcfpca.rpca.method import FloatArray, Stage
from participant.state.array_file import read_arrays, write_arrays

_ABOUT, _SITE = "about", "site."


@dataclass(frozen=True, slots=True, eq=False)
class LocalStep:
    """The outcome of a local step: the update, the state from which the site computes the next step, and in a fixed
    cohort the consensus that the step was computed on, as one vector, and the digest of the round's opening."""

    round: int
    consensus: bytes
    vector: FloatArray = field(repr=False)
    snapshot: Mapping[str, NDArray[np.generic]] = field(repr=False)
    broadcast: FloatArray = field(repr=False, default_factory=lambda: np.zeros(0))
    stage: Stage = Stage.FIT
    opening: bytes = b""


@dataclass(frozen=True, slots=True)
class StepLabel:
    """Which of a run's steps a file holds, counted from 1, and the format of the site's state in it."""

    number: int
    format: str


def write_step(path: Path, label: StepLabel, step: LocalStep) -> None:
    """Write the file, in place where there is one. Until it is written whole, its checksum is wrong."""
    about = {"number": label.number, "format": label.format, "round": step.round, "stage": int(step.stage)}
    text = json.dumps(about | {"consensus": step.consensus.hex(), "opening": step.opening.hex()}).encode()
    arrays: dict[str, NDArray[np.generic]] = {
        _ABOUT: np.frombuffer(text, np.uint8),
        "update": step.vector,
        "broadcast": step.broadcast,
        **{f"{_SITE}{key}": value for key, value in step.snapshot.items()},
    }
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        write_arrays(file, arrays)
        file.truncate()


def read_step(path: Path) -> tuple[StepLabel, LocalStep]:
    """The step in this file, memory-mapped; BadInput when the file is incomplete, damaged, or of an earlier version."""
    arrays = read_arrays(path)
    try:
        about = json.loads(arrays.pop(_ABOUT).tobytes())
        vector, broadcast = arrays.pop("update"), arrays.pop("broadcast")
        snapshot = {key.removeprefix(_SITE): arrays[key] for key in arrays}
        label = StepLabel(int(about["number"]), str(about["format"]))
        consensus, opening = bytes.fromhex(about["consensus"]), bytes.fromhex(about.get("opening", ""))
        stage = Stage(int(about["stage"]))
        return label, LocalStep(int(about["round"]), consensus, vector, snapshot, broadcast, stage, opening)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path} is no step file of this version: {error!r}") from None
