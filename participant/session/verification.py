"""Whether the aggregator's sum is true, and whether the consensus it announces follows from it. Pure.

A site checks the last sum that it had a part in: its digest is the one bound into the new round, its tag is right under
the group secret, and the method's `advance`, carried out here, gives the consensus that was announced.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput, BadMessage
from dcfpca.method_memory import decode_memory, encode_memory
from dcfpca.rpca.method import Consensus, FloatArray, TensorMessage, Total
from dcfpca.rpca.stage_checks import TOLERANCE
from dcfpca.secagg.errors import ChangedExponent, Evidence, ImpossibleSum, WrongConsensus, WrongSum
from dcfpca.secagg.fixed_point import RING, from_ring, lifted, next_exponents, rounding_of
from dcfpca.secagg.messages import (
    context_of,
    members_in_turn,
    opening_digest,
    sum_digest,
    unforeseen_draw,
)
from dcfpca.secagg.site import SecureSite
from dcfpca.terms import Terms
from dcfpca.wire.constants import SMALL_SUM
from dcfpca.wire.tensors import message_bytes
from participant.policy import SitePolicy
from participant.session.events import Announcement, ShownSum
from participant.session.secure_run import announced_opening

SAMPLED = 128
"""With `verify = "sampled"`, a site checks a large sum in one of this many rounds, unpredictably, and in its turns."""


def wants_verification(policy: SitePolicy, sum_bytes: int, side: SecureSite, round: int) -> bool:
    """Whether the site checks the sum from which this round follows, if it has this size: every small one, and a large
    one in its turns and by a draw that only the site knows."""
    if policy.verify != "sampled" or sum_bytes <= SMALL_SUM:
        return policy.verify != "never"
    drawn = unforeseen_draw(side.state.roots, round) % SAMPLED == 0
    return drawn or side.name in members_in_turn(side.terms.cohort, round)


def following(
    terms: Terms,
    side: SecureSite,
    before: Consensus,
    shown: ShownSum,
    known: Consensus | None,
    announced: Announcement | None = None,
) -> Consensus:
    """What follows from the sum that is shown of the round before; WrongSum unless the members sent it.

    `known` is what this function gave in the round before, if it did: the memory that goes with `before` must be the
    one that followed then. Otherwise an aggregator could steer a consensus by the memory it is computed from.
    `announced` is the round that was opened after it; None where the run is over.
    """
    numbers = _verified_numbers(terms, side, before, shown, announced.previous_sum if announced else b"")
    told, precision = shown.announced, terms.spec.precision
    ended_with = lifted(terms.blocks[before.stage], told.exponents, len(told.misfits), precision)
    if announced is not None:
        _check_exponents(terms, before, ended_with, numbers, announced)
    _check_memory(side, before, shown, known)
    members, up = len(side.terms.cohort), terms.method.stage(before.stage).up
    rounding = rounding_of(up, ended_with, members, precision)
    return _advanced(terms, before, shown.memory, Total(TensorMessage.unflatten(up, numbers), members, rounding))


def check_announced(
    terms: Terms,
    side: SecureSite,
    before: Consensus,
    announced: Announcement,
    consensus: TensorMessage,
    expected: Consensus,
) -> None:
    """Raise WrongConsensus unless the announced round and consensus are what is expected, up to rounding."""
    sentence = ""
    if expected.outcome is not None:
        sentence = f"the run is over after round {before.round}, and round {announced.round} was opened"
    elif expected.round != announced.round:
        sentence = f"round {announced.round} was opened where round {expected.round} follows"
    elif announced.stage != expected.stage or not _is_close(terms, expected, consensus):
        sentence = (
            f"the consensus of round {announced.round} does not follow from the sum of round {before.round}"
            f" ({announced.previous_sum.hex()[:16]})"
        )
    if sentence:
        raise _wrong(side, before, consensus, expected, sentence)


def check_final(
    terms: Terms, side: SecureSite, before: Consensus, stage: str, consensus: TensorMessage, expected: Consensus
) -> None:
    """Raise WrongConsensus unless the run ends with the stage and consensus that are expected, up to rounding."""
    if stage != expected.stage or not _is_close(terms, expected, consensus):
        sentence = f"the final consensus does not follow from the sum of round {before.round}"
        raise _wrong(side, before, consensus, expected, sentence)


def _is_close(terms: Terms, expected: Consensus, consensus: TensorMessage) -> bool:
    """Whether the consensus is, up to rounding, the one that is expected."""
    if message_bytes(expected.broadcast) == message_bytes(consensus):
        return True
    return terms.method.difference(expected, consensus) <= 1.0


def _wrong(
    side: SecureSite, before: Consensus, consensus: TensorMessage, expected: Consensus, sentence: str
) -> WrongConsensus:
    mine, theirs = (hashlib.sha256(message_bytes(one)).digest() for one in (expected.broadcast, consensus))
    found = f"{sentence}; announced was {theirs.hex()[:16]}, this site computed {mine.hex()[:16]}"
    return WrongConsensus(found, evidence=_evidence(side, before, theirs, mine))


def _evidence(side: SecureSite, before: Consensus, announced: bytes, found: bytes) -> Evidence:
    return Evidence(before.round, side.state.opening, announced, found)


def _verified_numbers(
    terms: Terms, side: SecureSite, before: Consensus, shown: ShownSum, announced: bytes
) -> FloatArray:
    """The numbers of the sum that is shown, after checking that the members sent them in that round; else WrongSum.

    With `announced`, the sum must also have this digest.
    """
    layout = terms.blocks[before.stage]
    opening = announced_opening(shown.announced, layout, hashlib.sha256(message_bytes(before.broadcast)))
    if (other := opening_digest(side.terms, side.state.roster, opening)) != side.state.opening:
        sentence = f"the sum that is shown for round {before.round} is of another opening than this site answered"
        raise WrongSum(sentence, evidence=_evidence(side, before, other, side.state.opening))
    total = np.frombuffer(shown.total, dtype=RING[side.terms.precision])
    context = context_of(side.terms, side.state.roster, opening, len(opening.misfits))
    total_sha256 = hashlib.sha256(shown.total).digest()
    found = sum_digest(context, total_sha256, shown.tag)
    announced = announced or found
    wrong = ""
    if total.size != layout.size:
        wrong = f"has {total.size} numbers, not {layout.size}"
    elif found != announced:
        wrong = f"({found.hex()[:16]}) is not the one whose digest was announced ({announced.hex()[:16]})"
    if wrong:
        sentence = f"the sum that is shown for round {before.round} {wrong}"
        raise WrongSum(sentence, evidence=_evidence(side, before, announced, found))
    try:
        return side.verify_sum(opening, total, shown.tag)
    except WrongSum as error:
        tag = side.tag_of_sum(opening, from_ring(total, side.terms.precision))
        error.evidence = _evidence(side, before, announced, sum_digest(context, total_sha256, tag))
        raise


def _check_exponents(
    terms: Terms, before: Consensus, ended_with: tuple[int, ...], numbers: FloatArray, announced: Announcement
) -> None:
    """The exponents of a round follow from the sum before, so that no misfit can be provoked."""
    layout = terms.blocks[terms.method.stage(announced.stage).name]
    wanted = layout.first_exponents
    if layout == terms.blocks[before.stage]:
        wanted = next_exponents(layout, ended_with, numbers, terms.spec.precision)
    if announced.exponents != wanted:
        raise ChangedExponent(f"the exponents of round {announced.round} do not follow from the sum before")


def _check_memory(side: SecureSite, before: Consensus, shown: ShownSum, known: Consensus | None) -> None:
    """The memory that is shown is the one that was announced, and the one that followed where this site knows it."""
    announced, found = shown.announced.memory_sha256, hashlib.sha256(shown.memory).digest()
    if found != announced:
        sentence = f"the memory that is shown for round {before.round} is not the one that was announced"
        raise WrongConsensus(sentence, evidence=_evidence(side, before, announced, found))
    if known is None or known.round != before.round or (mine := encode_memory(known.memory)) == shown.memory:
        return
    memory = decode_memory(shown.memory)
    same_names = memory.keys() == known.memory.keys()
    if not same_names or not all(_close(known.memory[name], memory[name]) for name in memory):
        sentence = f"the memory of round {before.round} does not follow from the sum before"
        raise WrongConsensus(sentence, evidence=_evidence(side, before, announced, hashlib.sha256(mine).digest()))


def _close(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Equal up to the rounding of other machines; figures of order one may also vanish differently."""
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=TOLERANCE, atol=1e-9))


def _advanced(terms: Terms, before: Consensus, memory: bytes, total: Total) -> Consensus:
    """The consensus that follows, with the memory that was announced for the round before.

    The members sent this sum; whether it can be one of true updates is asked before anything is computed from it.
    """
    try:
        consensus = Consensus(before.round, before.stage, before.broadcast, decode_memory(memory))
        if broken := terms.method.conserved(consensus, total):
            raise ImpossibleSum(f"the sum of round {before.round} cannot be true: {broken}")
        return terms.method.advance(consensus, total)
    except ImpossibleSum:
        raise
    except (BadInput, BadMessage, KeyError, TypeError, ValueError) as error:
        sentence = f"nothing follows from the sum and the memory that are shown for round {before.round}: {error}"
        raise WrongConsensus(sentence) from error
