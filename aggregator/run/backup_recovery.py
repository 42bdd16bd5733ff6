"""A run whose store was restored from a backup is behind its sites: how it catches up with them.

Sites never go back: neither to an attempt that is over, for its seeds are spent, nor to another consensus for a round
they have seen. So the run goes forward. Every announcement of an attempt carries a ticket that only this run can have
made, and a site that connects shows the last one it was given. Is it from a future that the store has forgotten, then
the run moves beyond it: to a further attempt at the same round, or with the consensus it has to the round after the
last one that was opened. No number is used twice, and no site takes part in more rounds than it agreed to.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, replace

from aggregator.run.effects import Discard, Effect, Recast
from aggregator.run.events import SeenAhead
from aggregator.run.phases import open_round
from aggregator.run.state import Round, Run, Status, ended
from dcfpca.methods import method_of
from dcfpca.rpca.method import Consensus, Outcome
from dcfpca.secagg.encoding import canonical
from dcfpca.spec import RunSpec

Step = tuple[Run, tuple[Effect, ...]]

_STAMP_BYTES = 8


@dataclass(frozen=True, slots=True)
class Seen:
    """The last attempt that was opened to a participant, as it says, with the ticket that came with it."""

    run_id: str
    round: int
    attempt: int
    consensus: bytes
    ticket: bytes


def ticket_of(run: Run, round: Round, consensus: bytes) -> bytes:
    """The ticket of this attempt, which begins with the consensus of this digest; empty where the run has no seal."""
    stamp = int(round.opened_at * 1000).to_bytes(_STAMP_BYTES, "big")
    return _ticket(run, round.round, round.attempt, consensus, stamp) if run.seal else b""


def _ticket(run: Run, round: int, attempt: int, consensus: bytes, stamp: bytes) -> bytes:
    statement = canonical("ticket", run.run_id, round, attempt, consensus, stamp)
    return stamp + hmac.digest(run.seal, statement, "sha256")


def news_in(run: Run, consensus: bytes, participant: str, seen: Seen, at: float) -> SeenAhead | None:
    """What a participant's last ticket tells a run that has this consensus; None when the run knows it, or it lies.

    The ticket proves that this run opened the attempt, so one participant's word is enough.
    """
    stamp = seen.ticket[:_STAMP_BYTES]
    genuine = _ticket(run, seen.round, seen.attempt, seen.consensus, stamp) if run.seal else b""
    if not genuine or not hmac.compare_digest(genuine, seen.ticket):
        return None
    same = seen.consensus == consensus
    if run.round is not None and _is_past(run.round, seen.round, seen.attempt, same):
        return None
    if run.round is not None and seen.ticket == ticket_of(run, run.round, consensus):
        return None
    return SeenAhead(at=at, participant=participant, round=seen.round, attempt=seen.attempt, same_consensus=same)


def _is_past(here: Round, round: int, attempt: int, same_consensus: bool) -> bool:
    """Whether an attempt is one that the run has left behind, so that its site will go along with the present one."""
    return round < here.round or (round == here.round and same_consensus and attempt < here.attempt)


def catch_up(spec: RunSpec, run: Run, event: SeenAhead) -> Step:
    """Move beyond an attempt that this run opened before its store was restored; nothing where it is beyond already."""
    if run.status.over:
        return run, ()
    if run.status is Status.ENROLLING or run.round is None:
        return _give_up(run, event, "from before the run began")
    here = run.round
    if _is_past(here, event.round, event.attempt, event.same_consensus):
        return run, ()
    if event.round == here.round and event.same_consensus:
        attempt = event.attempt + 1
        moved = open_round(spec, run, here.round, attempt, event.at, first_attempt=attempt)
        return replace(moved, reason=_told(event)), (Discard(here.round, here.attempt),)
    return _go_on_as(spec, run, here, event)


def _go_on_as(spec: RunSpec, run: Run, here: Round, event: SeenAhead) -> Step:
    """The consensus of the store takes the next number that no site has seen."""
    if here.round <= method_of(spec).opening_rounds:
        return _give_up(run, event, f"of round {here.round}, which is part of the opening")
    gone, number = Discard(here.round, here.attempt), event.round + 1
    if number > spec.last_round:
        reason = f"{Outcome.OUT_OF_ROUNDS.value}; {_told(event)}, and its rounds are used up"
        return ended(run, Status.FINISHED, reason, event.at), (gone, Recast(here.round, over=True))
    moved = open_round(spec, run, number, 1, event.at)
    return replace(moved, reason=_told(event)), (gone, Recast(number))


def _give_up(run: Run, event: SeenAhead, age: str) -> Step:
    """Nothing of worth is lost: there is no consensus yet to go on from."""
    reason = f"the store was restored from a backup {age}, and the sites are at round {event.round}"
    gone = (Discard(run.round.round, run.round.attempt),) if run.round else ()
    return ended(run, Status.FAILED, f"{reason}; propose the run again", event.at), gone


def _told(event: SeenAhead) -> str:
    return f"the store was restored from a backup from before round {event.round} attempt {event.attempt}"


def recast(consensus: Consensus, effect: Recast) -> Consensus:
    """The same consensus under its new number."""
    outcome = Outcome.OUT_OF_ROUNDS if effect.over else consensus.outcome
    return replace(consensus, round=effect.round, outcome=outcome)
