"""Opens the sum of a round of a fixed cohort, and keeps it in the form in which members can check it."""

from __future__ import annotations

from dataclasses import dataclass

from aggregator.encoded_consensus import EncodedConsensus
from aggregator.round_opening import round_opened
from aggregator.run.fixed_cohort import context_of, opening_of, terms_of
from aggregator.run.state import Attempt, Run
from aggregator.running_sum import advanced, update_dtype
from aggregator.store.opened_sums import StoredSum
from dcfpca.chunked_vectors import header_with
from dcfpca.rpca.method import Consensus, Method
from dcfpca.secagg.fixed_cohort import OpenedSum, Opening, Tally, open_sum
from dcfpca.secagg.fixed_cohort.exponents import first_exponents, lifted, next_exponents
from dcfpca.secagg.fixed_cohort.homomorphic_mac import P
from dcfpca.secagg.ring_fixed_point import RingArray
from dcfpca.secagg_block_layout import block_layout
from dcfpca.spec import RunSpec
from dcfpca.v1 import rounds_pb2 as pb


@dataclass(frozen=True, slots=True)
class OpenedRound:
    """The consensus after a round; of a fixed cohort also what the next round is bound to, and the sum to keep."""

    consensus: Consensus
    sum_digest: bytes = b""
    exponents: tuple[int, ...] = ()
    stored: StoredSum | None = None


def open_round(spec: RunSpec, method: Method, run: Run, told: EncodedConsensus, values: RingArray) -> OpenedRound:
    """The consensus that follows from the sum of all masked updates, whose masks cancel."""
    assert run.attempt is not None
    attempt, terms = run.attempt, terms_of(spec, run)
    opening = opening_of(spec, run, told.told)
    tag = sum(attempt.tags.values()) % P
    tally = Tally(context_of(spec, run, told.told), values, tag, set(attempt.updates))
    total = open_sum(terms, opening, tally)
    after = advanced(method, told.consensus, total.numbers, len(terms.cohort))
    exponents = _next_exponents(spec, method, opening, total, after)
    return OpenedRound(after, total.digest(), exponents, _stored(spec, method, run, attempt, told, total))


def _next_exponents(
    spec: RunSpec, method: Method, opening: Opening, total: OpenedSum, after: Consensus
) -> tuple[int, ...]:
    """The exponents of the next round: from this sum if its updates have the same layout, else from the layout."""
    layout = block_layout(method.update_layout(after.round, after.stage), spec.precision)
    if layout != opening.layout:
        return first_exponents(layout)
    before = lifted(opening.layout, opening.exponents, len(opening.misfits), spec.precision)
    return next_exponents(layout, before, total.numbers, spec.precision)


def _stored(
    spec: RunSpec, method: Method, run: Run, attempt: Attempt, told: EncodedConsensus, total: OpenedSum
) -> StoredSum:
    layout = method.update_layout(attempt.ref.round, told.consensus.stage)
    header = pb.SumHeader(
        tensor=header_with(total.sha256, layout, update_dtype(spec)),
        tag=total.tag,
        opened=round_opened(run, attempt, told, b""),
        memory=told.memory,
        contributors=len(run.cohort),
    )
    return StoredSum(attempt.ref.round, header.SerializeToString(), total.values.tobytes())
