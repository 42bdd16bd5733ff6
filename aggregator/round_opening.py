"""The announcement of an open round, as participants receive it and as it is kept beside the round's sum."""

from __future__ import annotations

from aggregator.encoded_consensus import EncodedConsensus
from aggregator.run.state import Attempt, Run
from dcfpca import dropout_recovery_wire, fixed_cohort_wire
from dcfpca.v1 import rounds_pb2 as pb


def round_opened(run: Run, attempt: Attempt, consensus: EncodedConsensus, ticket: bytes) -> pb.RoundOpened:
    """The open attempt without its consensus; with a fixed cohort, all that the masks of the round are bound to."""
    opened = pb.RoundOpened(
        ref=dropout_recovery_wire.ref_to_wire(attempt.ref),
        spec_sha256=run.spec_sha256,
        cohort=run.cohort,
        consensus=consensus.header,
        ticket=ticket,
        stage=f"STAGE_{consensus.stage.name}",
    )
    if run.fixed_cohort is not None:
        fixed = run.fixed_cohort
        opened.previous_sum = fixed.previous_sum
        opened.exponents.extend(fixed.exponents)
        opened.misfits.extend(fixed_cohort_wire.misfit_to_wire(misfit) for misfit in fixed.misfits)
        opened.memory_sha256 = consensus.memory_sha256
    return opened
