"""How a run whose store was restored from a backup catches up with its sites.

A site never goes back: neither to an attempt that is over, nor to another consensus for a round that it has seen. So
the run goes forward. Every announcement of an attempt carries a ticket that only this run
can have made, and a site that connects shows the last ticket it received. If the restored store does not contain that
attempt, the run moves beyond it: to a further attempt at the same round, or, with the consensus it has, to the round
after the last one that was opened. No number is used twice, and no site takes part in more rounds than it agreed to.
A secure run pauses instead: its members answer each round once, and go on from no other consensus. It goes on with
theirs once the whole cohort has shown the same one (`aggregator.returned_consensus`), and is told their answers again.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aggregator.run import waiting
from aggregator.run.attempts import (
    STAMP_BYTES,
    AdoptReturned,
    Discard,
    RenumberConsensus,
    Step,
    open_attempt,
    seal_of,
    ticket_of,
)
from aggregator.run.events import ConsensusReturned, NewerAttemptShown
from aggregator.run.state import Run, Status, ended, paused
from dcfpca.rpca.method import Consensus, Outcome
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.messages import Misfit
from dcfpca.spec import RunSpec

if TYPE_CHECKING:
    from aggregator.run.rules import RoundRules


@dataclass(frozen=True, slots=True)
class Announced:
    """What the members of a secure run were told of an attempt, beside its consensus."""

    stage: str
    previous_sum: bytes
    exponents: tuple[int, ...]
    misfits: tuple[Misfit, ...]
    memory_sha256: bytes


@dataclass(frozen=True, slots=True)
class ShownTicket:
    """The last attempt that was opened to a participant, as it states it, with the ticket it was given.

    `consensus` is the SHA-256 of the consensus with which the attempt began. Of a secure run, what else was announced,
    and with it the consensus and its memory where the participant has them.
    """

    ref: AttemptRef
    consensus: bytes
    ticket: bytes
    announced: Announced | None = None
    payload: bytes = field(default=b"", repr=False)
    memory: bytes = field(default=b"", repr=False)


def newer_attempt(
    run: Run, consensus: bytes, participant: str, shown: ShownTicket, at: float
) -> NewerAttemptShown | None:
    """The event that a shown ticket leads to; None when the run knows the attempt or did not make the ticket.

    `consensus` is the digest of the one that the run holds. The ticket proves that this run opened the attempt, so one
    participant is enough.
    """
    ref, stamp = shown.ref, shown.ticket[:STAMP_BYTES]
    if not run.seal:
        return None
    genuine = stamp + seal_of(run.seal, run.run_id, ref.round, ref.attempt, shown.consensus, stamp)
    if not hmac.compare_digest(genuine, shown.ticket):
        return None
    same = shown.consensus == consensus
    if run.attempt is not None and _is_past(run.attempt.ref, shown.ref, same):
        return None
    if run.attempt is not None and shown.ticket == ticket_of(run, run.attempt, consensus):
        return None
    return NewerAttemptShown(at=at, participant=participant, ref=shown.ref, same_consensus=same)


def _is_past(here: AttemptRef, shown: AttemptRef, same_consensus: bool) -> bool:
    """Whether the shown attempt comes before the open one, in which its site can therefore still take part."""
    same_round = shown.round == here.round
    return shown.round < here.round or (same_round and same_consensus and shown.attempt < here.attempt)


def catch_up(rules: RoundRules, run: Run, event: NewerAttemptShown) -> Step:
    """Move beyond an attempt that this run opened before its store was restored; no change if it is beyond already."""
    if run.status.over:
        return run, ()
    if run.status is Status.ENROLLING or run.attempt is None:
        return _give_up(run, event, "from before the run began")
    if _is_past(run.attempt.ref, event.ref, event.same_consensus):
        return run, ()
    return rules.overtaken(run, run.attempt.ref, event)


def stay_behind(run: Run, here: AttemptRef, event: NewerAttemptShown) -> Step:
    """A secure run's members answer each round once, so it cannot open another in place of those it has forgotten.

    If the forgotten opening was the same in everything but its time, the members repeat their answers to it.
    """
    if event.same_consensus and event.ref == here:
        return run, ()
    todo = "restart it from the consensus it has (`dcfpca run restart`), or abort it"
    return paused(run, f"{_restored_before(event.ref)}; {todo}"), ()


def brought_forward(run: Run, event: ConsensusReturned) -> Step:
    """The attempt that all members have seen, open again: they repeat their answers to it, and give no others."""
    if run.status.over or run.secure is None or run.attempt is None or event.ref <= run.attempt.ref:
        return run, ()
    if not run.secure.roster:  # from before the set-up was over: nobody here knows whose keys are whose
        return run, ()
    secure = replace(
        run.secure,
        adverts={},
        shares={},
        ready=frozenset(run.cohort),
        previous_sum=event.previous_sum,
        exponents=event.exponents,
        stage=event.stage,
        misfits=event.misfits,
    )
    reason = f"{_restored_before(event.ref)}; its sites brought the run forward"
    here, (round, attempt) = run.attempt.ref, (event.ref.round, event.ref.attempt)
    run = open_attempt(replace(run, secure=secure, status=Status.RUNNING, reason=reason), round, attempt, event.at)
    return waiting.begun(run, event.at), (Discard(here), AdoptReturned(event.ref))


def move_beyond(spec: RunSpec, run: Run, here: AttemptRef, event: NewerAttemptShown) -> Step:
    """A plain run opens a further attempt, or gives the stored consensus the next number that no site has seen."""
    gone, shown, number = Discard(here), event.ref, event.ref.round + 1
    if shown.round == here.round and event.same_consensus:
        attempt = shown.attempt + 1
        moved = open_attempt(run, here.round, attempt, event.at, first_attempt=attempt)
        return replace(moved, reason=_restored_before(shown)), (gone,)
    if number > spec.last_round:
        reason = f"{Outcome.OUT_OF_ROUNDS.value}; {_restored_before(shown)}, and its rounds are used up"
        return ended(run, Status.FINISHED, reason, event.at), (gone, RenumberConsensus(here.round, final=True))
    moved = open_attempt(run, number, 1, event.at)
    return replace(moved, reason=_restored_before(shown)), (gone, RenumberConsensus(number))


def _give_up(run: Run, event: NewerAttemptShown, age: str) -> Step:
    """Fail the run: the backup holds no consensus from which it could continue."""
    reason = f"the store was restored from a backup {age}, and the sites are at round {event.ref.round}"
    gone = (Discard(run.attempt.ref),) if run.attempt else ()
    return ended(run, Status.FAILED, f"{reason}; propose the run again", event.at), gone


def _restored_before(ref: AttemptRef) -> str:
    return f"the store was restored from a backup from before {ref}"


def renumbered(consensus: Consensus, effect: RenumberConsensus) -> Consensus:
    """The same consensus under its new round number."""
    outcome = Outcome.OUT_OF_ROUNDS if effect.final else consensus.outcome
    return replace(consensus, round=effect.round, outcome=outcome)
