"""A site's stored state of a run between two messages: one record whose size does not grow with the rounds.

Because the length never changes, the file that holds it can be overwritten in place, so that spent keys do not stay on
the disk. A record has a sequence number and a checksum: with two slots, written and synced one after the other, a crash
at any moment leaves one that is whole (`latest`), and after both writes nothing of the older state is left.

The state decides which openings a site answers: rounds increase, one opening per round, lifts only with signed misfits.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from dcfpca.errors import BadIdentity
from dcfpca.secagg.errors import ChangedConsensus, ChangedExponent, LostState, PastLastRound, RoundPassed
from dcfpca.secagg.fixed_point import MOST_LIFTS, check_exponents
from dcfpca.secagg.keys import KEY_BYTES, Verify, signed
from dcfpca.secagg.messages import Misfit, Opening, RunTerms, context_of, opening_digest

_MAGIC = b"dcfpca2\n"
_HEAD = struct.Struct(">8sQBqBBBI")
NOTHING = bytes(KEY_BYTES)


class Step(IntEnum):
    """The last step of a run that a site has done."""

    ADVERTISED = 0
    SHARED = 1
    READY = 2
    FINISHED = 3


@dataclass(frozen=True, slots=True)
class SiteState:
    """A site's commitments in a run, and the secrets it still needs for it.

    `round` is −1 before the first. `opening` and `update` pin what was answered there, and with which numbers. `lifts`
    counts the misfits of that round, `lifts_before` those of the rounds before, `own_misfits` those that this site
    itself stated, whatever came of them. `roots` has one for each of the cohort in order, for the round `max(round,
    0)`; zeros stand where there is none. `private_key` is the secret from which both keys of the run follow; once the
    roster is accepted, only the secret of the ML-KEM key is left, and until the shares arrive `roots` are X25519
    agreements.
    """

    binding: bytes
    step: Step
    private_key: bytes = field(repr=False)
    own_share: bytes = field(repr=False)
    roots: tuple[bytes, ...] = field(repr=False)
    group_secret: bytes = field(default=NOTHING, repr=False)
    roster: bytes = NOTHING
    round: int = -1
    opening: bytes = NOTHING
    update: bytes = NOTHING
    lifts: int = 0
    lifts_before: int = 0
    own_misfits: int = 0
    sequence: int = 0


def to_record(state: SiteState) -> bytes:
    """The state as bytes; their number depends on the size of the cohort alone."""
    misfits = (state.lifts, state.lifts_before, state.own_misfits)
    head = _HEAD.pack(_MAGIC, state.sequence, state.step, state.round, *misfits, len(state.roots))
    pinned = (state.group_secret, state.roster, state.opening, state.update)
    body = b"".join((head, state.binding, state.private_key, state.own_share, *pinned, *state.roots))
    return body + hashlib.sha256(body).digest()


def from_record(record: bytes, binding: bytes) -> SiteState:
    """The state of the run with this binding, or LostState."""
    body = record[:-KEY_BYTES]
    if not _is_whole(record):
        raise LostState("the stored keys of this run are damaged", "this site cannot rejoin the run: start a new one")
    magic, sequence, step, round, lifts, lifts_before, own_misfits, members = _HEAD.unpack_from(body)
    words = [body[start : start + KEY_BYTES] for start in range(_HEAD.size, len(body), KEY_BYTES)]
    if magic != _MAGIC or len(words) != 7 + members or words[0] != binding:
        raise LostState("the stored keys belong to another run, spec or cohort", "this site cannot rejoin the run")
    _, private_key, own_share, group_secret, roster, opening, update, *roots = words
    return SiteState(
        binding=binding,
        step=Step(step),
        private_key=private_key,
        own_share=own_share,
        roots=tuple(roots),
        group_secret=group_secret,
        roster=roster,
        round=round,
        opening=opening,
        update=update,
        lifts=lifts,
        lifts_before=lifts_before,
        own_misfits=own_misfits,
        sequence=sequence,
    )


def latest(slots: Iterable[bytes], binding: bytes) -> SiteState:
    """The newest whole state among the slots, or LostState."""
    whole: list[SiteState] = []
    for slot in slots:
        try:
            whole.append(from_record(slot, binding))
        except LostState as error:
            refusal = error
    if not whole:
        raise refusal
    return max(whole, key=lambda state: state.sequence)


def newest_slot(slots: Iterable[bytes]) -> int:
    """Which slot has the newest whole state, of whatever run; the last where that makes no difference."""
    numbers = [_HEAD.unpack_from(slot)[1] if _is_whole(slot) else -1 for slot in slots]
    return max(range(len(numbers)), key=lambda place: (numbers[place], place), default=1)


def _is_whole(record: bytes) -> bool:
    body, checksum = record[:-KEY_BYTES], record[-KEY_BYTES:]
    return len(body) >= _HEAD.size and hashlib.sha256(body).digest() == checksum


def check_opening(terms: RunTerms, state: SiteState, opening: Opening, verify: Verify) -> None:
    """Raise the refusal that fits this opening in this state, if any."""
    lifts, again = len(opening.misfits), opening.round == state.round
    if opening.round > terms.last_round:
        raise PastLastRound(f"round {opening.round} is beyond the last of the spec, {terms.last_round}")
    if opening.round < max(state.round, 0):
        raise RoundPassed(f"round {opening.round} is over, this site has answered round {state.round}")
    check_exponents(opening.layout, opening.exponents)
    if again and opening_digest(terms, state.roster, opening) != state.opening:
        raise ChangedConsensus(f"round {opening.round} was opened with another consensus, sum, layout or exponent")
    if again and lifts < state.lifts:
        raise ChangedExponent(f"the exponents of round {opening.round} were raised {state.lifts} times already")
    before = state.lifts_before if again else state.lifts_before + state.lifts
    if before + lifts > MOST_LIFTS:
        raise ChangedExponent(f"the exponents of a run are raised at most {MOST_LIFTS} times")
    for place, misfit in enumerate(opening.misfits):
        _check_misfit(terms, misfit, context_of(terms, state.roster, opening, place), verify)


def _check_misfit(terms: RunTerms, misfit: Misfit, context: bytes, verify: Verify) -> None:
    if misfit.name not in terms.cohort or misfit.context != context:
        raise ChangedExponent(f"the exponents are raised for a misfit of {misfit.name} that is not of this round")
    try:
        identity = verify(misfit.certificate, misfit.name)
    except BadIdentity as error:
        raise ChangedExponent(f"the misfit of {misfit.name} has no valid certificate: {error}") from error
    if not signed(identity, misfit.signature, misfit.statement()):
        raise ChangedExponent(f"{misfit.name} did not sign that its update does not fit")
