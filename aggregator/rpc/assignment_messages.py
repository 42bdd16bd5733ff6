"""Encodes assignments: the run's state, the consensus and the sums that go with them, once for all streams."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, assert_never
from weakref import WeakKeyDictionary

from aggregator.run.attempts import Assignment, Kind, ticket_of
from aggregator.run.rules import deadline
from aggregator.run.secure_sum import full_roster
from aggregator.run.state import Run, Status, opened
from aggregator.runner import Runner
from aggregator.store.run_rows import StoredSum
from aggregator.sums import EncodedConsensus, Sums
from dcfpca.secagg.aggregator import shares_for
from dcfpca.secagg.messages import SealedShare, members_in_turn
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.types_pb2 import TensorHeader
from dcfpca.wire import round_messages
from dcfpca.wire.constants import SMALL_SUM
from dcfpca.wire.tensors import fits_one_message

BROADCAST_BYTES = 16 << 20
"""The most that the streams of a run may write at once; a larger broadcast is written to some streams at a time."""

MANY_MEMBERS, RELAYED_BYTES = 64, 3200
"""From which cohort on shares are encoded one member at a time, and about how many bytes each of the others adds."""

_SetUpKind = Literal[Kind.RUN_KEY_WANTED, Kind.ROSTER_CLOSED, Kind.GROUP_SHARES_RELAYED]

# Assignments that are the same for every participant.
_SHARED = frozenset(
    {
        Kind.RUN_PROPOSED,
        Kind.RUN_KEY_WANTED,
        Kind.ROSTER_CLOSED,
        Kind.ROUND_OPENED,
        Kind.RUN_FINISHED,
    }
)


@dataclass(frozen=True, slots=True)
class StageFacts:
    """Inputs of the assignments of one stage beside the run's state. `shared` caches encoded messages by key.

    `with_sum` is the announcement with the sum of the round before in place of the consensus, for those `checking` it.
    `keys` are the sets of keys that streams have sent, each in memory once.
    """

    spec_bytes: bytes
    deadline_ms: int = 0
    consensus: TensorHeader | None = None
    opened: pb.RoundOpened | None = None
    with_sum: pb.RoundOpened | None = None
    checking: frozenset[str] = frozenset()
    stage: str = ""
    shared: dict[str, bytes] = field(default_factory=dict)
    keys: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)


def stage_facts(
    sums: Sums,
    spec_bytes: bytes,
    run: Run,
    consensus: EncodedConsensus,
    opened_sum: StoredSum | None = None,
    due: float | None = None,
) -> StageFacts:
    """The facts of the run's present stage, which ends when it is `due`."""
    facts = StageFacts(
        spec_bytes=spec_bytes,
        deadline_ms=int(due * 1000) if due else 0,
        consensus=consensus.header if run.status in (Status.RUNNING, Status.FINISHED) else None,
        stage=consensus.consensus.stage,
    )
    if run.status is not Status.RUNNING or run.attempt is None:
        return facts
    opened = sums.announcement(run, consensus, ticket_of(run, run.attempt, consensus.header.sha256))
    with_sum, members, round = None, len(run.cohort), run.attempt.ref.round
    if opened_sum and opened_sum.round + 1 == round and fits_one_message(len(opened_sum.values), members):
        with_sum = pb.RoundOpened()
        with_sum.CopyFrom(opened)
        with_sum.sum.ParseFromString(opened_sum.header)
        with_sum.inline_sum = opened_sum.values
    if with_sum is not None and len(with_sum.inline_sum) <= SMALL_SUM:
        opened, with_sum = with_sum, None
    if fits_one_message(len(consensus.payload) + len(opened.inline_sum), members):
        opened.inline_consensus = consensus.payload
    checking = members_in_turn(run.cohort, round) if with_sum is not None else frozenset()
    return replace(facts, opened=opened, with_sum=with_sum, checking=checking)


class StageCache:
    """The facts of each run's present stage, looked up once and shared by all streams; forgotten with the run."""

    def __init__(self) -> None:
        self._facts: WeakKeyDictionary[Runner, tuple[object, StageFacts]] = WeakKeyDictionary()
        self._fetching: WeakKeyDictionary[Runner, frozenset[str]] = WeakKeyDictionary()

    def note_fetched(self, runner: Runner, participant: str) -> None:
        """A member asked for the consensus: if it was shown the sum in its place, it is so no more in this run."""
        if participant in self.now(runner).checking:
            self._fetching[runner] = self._fetching.get(runner, frozenset()) | {participant}

    def now(self, runner: Runner) -> StageFacts:
        """The facts of this run's present stage."""
        run, stage = runner.run, runner.run.stage()
        cached = self._facts.get(runner)
        if cached is None or cached[0] != stage:
            held = runner.round_sum
            due = deadline(runner.rules, run)
            facts = stage_facts(held.sums, runner.spec_bytes, run, held.encoded(), held.opened_sum, due)
            facts = replace(facts, checking=facts.checking - self._fetching.get(runner, frozenset()))
            cached = self._facts[runner] = (stage, facts)
        return cached[1]


def outgoing(facts: StageFacts, run: Run, participant: str, one: Assignment) -> tuple[Callable[[], bytes], int]:
    """What gives the serialized `Assignment`, and its size. Those that are the same for everybody are encoded once;
    a member's shares in a large cohort only when they are written, for all of them together are its square."""
    if one.kind is Kind.GROUP_SHARES_RELAYED and len(run.cohort) > MANY_MEMBERS:
        return partial(_encoded, facts, run, participant, one), RELAYED_BYTES * len(run.cohort)
    key = f"{one.key} with sum" if participant in facts.checking else one.key
    body = facts.shared.get(key) or _encoded(facts, run, participant, one)
    if one.kind in _SHARED:
        facts.shared[key] = body
    return lambda: body, len(body)


def _encoded(facts: StageFacts, run: Run, participant: str, one: Assignment) -> bytes:
    content: dict[str, Any] = {one.kind.value: _content(facts, run, participant, one)}
    message = pb.Assignment(run_id=run.run_id, key=one.key, deadline_ms=facts.deadline_ms, **content)
    return message.SerializeToString()


def _content(facts: StageFacts, run: Run, participant: str, one: Assignment) -> Any:
    match one.kind:
        case Kind.RUN_PROPOSED:
            return pb.RunProposed(spec=facts.spec_bytes, spec_sha256=run.spec_sha256)
        case Kind.STANDBY:
            return pb.Standby(reason=one.reason)
        case Kind.RUN_FINISHED:
            return _finished(facts, run)
        case Kind.EXPORT_WANTED:
            assert run.export is not None
            return pb.ExportWanted(export_id=run.export.export_id)
        case Kind.ROUND_OPENED:
            return facts.with_sum if participant in facts.checking else facts.opened
        case Kind.RUN_KEY_WANTED | Kind.ROSTER_CLOSED | Kind.GROUP_SHARES_RELAYED:
            return _set_up_body(run, participant, one.kind)
        case _:
            assert_never(one.kind)


def _set_up_body(run: Run, participant: str, kind: _SetUpKind) -> Any:
    secure, _ = opened(run)
    if kind is Kind.RUN_KEY_WANTED:
        return pb.RunKeyWanted(spec_sha256=run.spec_sha256, cohort=run.cohort)
    keys = round_messages.roster_to_wire(full_roster(secure))
    if kind is Kind.ROSTER_CLOSED:
        return pb.RosterClosed(keys=keys)
    # Found by bisection, because a cohort of n has about n² shares: each member's are sorted by receiver.
    given = secure.shares.values()
    sealed = (shares[place] for shares in given if (place := _place(shares, participant)) < len(shares))
    incoming = round_messages.shares_to_wire(shares_for(participant, sealed))
    return pb.GroupSharesRelayed(incoming=incoming, keys=keys)


def _place(shares: Sequence[SealedShare], receiver: str) -> int:
    return bisect_left(shares, receiver, key=lambda share: share.receiver)


def _finished(facts: StageFacts, run: Run) -> pb.RunFinished:
    return pb.RunFinished(
        status=run.status.value,
        reason=run.reason,
        round=run.attempt.ref.round if run.attempt else 0,
        spec_sha256=run.spec_sha256,
        consensus=facts.consensus if run.status is Status.FINISHED else None,
        stage=facts.stage,
    )
