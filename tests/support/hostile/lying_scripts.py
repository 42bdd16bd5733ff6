"""Scripts of a lying aggregator, drawn and played by Hypothesis, and the lies in its announcements."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from dcfpca.method_memory import encode_memory
from dcfpca.rpca.method import FloatArray, TensorMessage
from dcfpca.v1 import rounds_pb2 as pb
from tests.support.hostile.played_run import changed
from tests.support.hostile.secure_play import FixedCohortPlay

STAGES = ("median", "deviation", "open", "fit", "refine", "validate", "shape", "covariance", "null", "check")


def play(liar: type[RuleBasedStateMachine], scripts: int, *, steps: int = 20, derandomize: bool = False) -> None:
    """Play so many scripts of up to so many steps; the first that breaks the machine's invariant fails, not
    shortened."""
    chosen = settings(
        max_examples=scripts,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=derandomize,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(liar, settings=chosen)


def memory_digest(memory: Mapping[str, FloatArray]) -> bytes:
    """As an announcement has it."""
    return hashlib.sha256(encode_memory(memory)).digest()


def lying_announcement(run: FixedCohortPlay, lie: str, place: int, attempt: int) -> pb.RoundOpened:
    """The announcement that is due, but for one thing."""
    due, told = run.consensus, run.consensus.broadcast
    if lie in ("tensor", "scalar") and told.flat().size:
        tensor, scalars = told.tensor.copy(), told.scalars.copy()
        part = tensor.reshape(-1) if tensor.size and (lie == "tensor" or not scalars.size) else scalars
        part[place % part.size] = 1.01 * part[place % part.size] + 0.01
        return run.announcement(replace(due, broadcast=TensorMessage(tensor, scalars)), attempt)
    honest = run.announcement(attempt=attempt)

    def twist(opened: pb.RoundOpened) -> None:
        match lie:
            case "memory":
                opened.memory_sha256 = memory_digest({"warm": np.eye(4, 1)})
            case "previous_sum":
                opened.previous_sum = b"\x07" * 32
            case "exponents":
                opened.exponents[0] -= 3
            case "round":
                opened.ref.round += 1
            case "cohort":
                del opened.cohort[-1]
            case "spec":
                opened.spec_sha256 = bytes(32)
            case _:
                opened.stage = STAGES[place % len(STAGES)] if place % len(STAGES) else "another"

    return changed(honest, twist)
