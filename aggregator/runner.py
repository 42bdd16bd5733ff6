"""One run at work: events go in, the rules decide, the store is written, and only then is anybody answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aggregator.change_signal import Signal
from aggregator.returned_consensus import ReturnedConsensus
from aggregator.round_sum import FinalConsensus, RoundSum
from aggregator.run import events
from aggregator.run.attempts import Accumulate, AdoptReturned, Discard, Effect, RenumberConsensus, Reply, Sum
from aggregator.run.backup_recovery import renumbered
from aggregator.run.rules import deadline, rules_of, step
from aggregator.run.state import Phase, Run, Status
from aggregator.store.database import StoreFailed
from aggregator.store.run_rows import StoredRun
from aggregator.store.store import Commit
from aggregator.store.thread import StoreThread
from aggregator.store.update_files import UpdateKey
from dcfpca.logs import log
from dcfpca.wire.receipt import Fate
from dcfpca.wire.tensors import Buffer

_STOP = None
RETRY_SECONDS = 1.0
BATCH_SECONDS = 0.05
"""How long a batch of messages that complete no phase waits for more before it is committed: only their senders wait,
and have nothing to do before the phase closes."""
BATCH_EVENTS = 16
"""The largest batch that still waits for more, because the chunks that come with events stay in memory meanwhile."""

Chunk = tuple[UpdateKey, int, Buffer]
"""Part of an update: of which one, the byte at which it starts, and its content."""


@dataclass(slots=True)
class QueuedEvent:
    """An event in the queue, with the last chunk of an update that it completes."""

    event: events.Event
    answer: asyncio.Future[Reply | None]
    chunk: Chunk | None = None


def _unanswered(event: events.Event) -> QueuedEvent:
    """An event whose reply nobody waits for, so that its failure is nobody's to retrieve."""
    answer: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())
    return QueuedEvent(event, answer)


EventQueue = asyncio.Queue[QueuedEvent | None]


@dataclass(slots=True)
class Batch:
    """The result of some events, to be committed in one transaction. More may join them from the queue."""

    run: Run
    queue: EventQueue
    journal: list[events.Event] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    replies: list[Reply | None] = field(default_factory=list)


class Runner:
    """Owns the state of one run. Everybody else posts events and reads `run`.

    `percent` is how far the participants say that they are with their local step.
    """

    def __init__(self, stored: StoredRun, store: StoreThread, stage_changed: Callable[[Runner], None]) -> None:
        self.terms, self.spec, self.spec_bytes = stored.terms, stored.terms.spec, stored.spec_bytes
        self.rules = rules_of(self.terms)
        self.run = stored.run
        self.changed = Signal()
        self.round_sum = RoundSum(self.terms, stored.consensus)
        self.returned = ReturnedConsensus(self.terms)
        self.final = FinalConsensus(self.run.run_id, self.terms, self.round_sum, store)
        self.percent: dict[str, int] = {}
        self._seq = stored.seq
        self._store, self._stage_changed = store, stage_changed
        self._queue: EventQueue | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None
        self._stopping = False

    def report_progress(self, participant: str, percent: int) -> None:
        """Show how far a participant is with its local step, until the stage changes."""
        self.percent[participant] = percent
        self.changed.fire()

    async def start(self) -> None:
        """Begin with a run that was just proposed."""
        self._arm()

    async def restart(self) -> None:
        """Continue a run from the state in the store."""
        if self.run.status.over:
            self.final.release_later()
        else:
            lost = await self._rebuild()
            # Before any timer is set: participants that lost their connections must have the time to reconnect.
            self.tell(events.Restarted(at=self._store.now()))
            if lost:
                # Known before anybody connects: a repeat of a lost update must not pass for one that is held.
                await self.post(lost)
            elif self.run.phase == Phase.SUMMING:
                self.round_sum.start(self.run, self.tell, self._store.now)
        if gone := self._exports_lost():
            await self.post(events.ExportsLost(at=self._store.now(), participants=gone))

    def _exports_lost(self) -> tuple[str, ...]:
        """The participants of whose exported files one is not on this machine."""
        files = self._store.store.exports
        answers = self.run.export.answers if self.run.export else {}
        return tuple(
            name
            for name, answer in answers.items()
            if not all(files.holds(self.run.run_id, name, artifact, size) for artifact, size, _ in answer.files)
        )

    async def _rebuild(self) -> events.UpdatesLost | None:
        """Form the running sum again; the event says which accepted updates are lost, if any."""
        here = self.run.attempt
        if here is None:
            return None
        lost = await self._store.do(lambda store: self.round_sum.rebuild(store, here))
        if not lost:
            return None
        reason = f"the stored updates of {', '.join(lost)} are gone or torn"
        return events.UpdatesLost(at=self._store.now(), ref=here.ref, reason=reason, participants=tuple(lost))

    async def stop(self) -> None:
        """Commit the present batch and stop."""
        self._stopping = True
        self.final.cancel()
        if self._timer:
            self._timer.cancel()
        if self._task and self._queue:
            self._queue.put_nowait(_STOP)
            await asyncio.gather(self._task, return_exceptions=True)
        await self.round_sum.stop()

    async def post(self, event: events.Event, chunk: Chunk | None = None) -> Reply | None:
        """Post an event; returns the reply when all it led to is durable. Raises if the run's store has failed."""
        if self._failed:
            raise self._failed
        one = QueuedEvent(event, asyncio.get_running_loop().create_future(), chunk)
        self._enqueue(one)
        return await one.answer

    def tell(self, event: events.Event) -> None:
        """Post an event that needs no reply."""
        self._enqueue(_unanswered(event))

    def _enqueue(self, one: QueuedEvent) -> None:
        """Give an event to the worker. A run that is over has none until something happens to it again."""
        if self._queue is None:
            self._queue = asyncio.Queue()
            self._task = asyncio.create_task(self._work(self._queue), name=f"run {self.run.run_id}")
        self._queue.put_nowait(one)

    async def _work(self, queue: EventQueue) -> None:
        """Handle events as they come, until told to stop, or until the run is over and nothing is left to do.

        A worker that waits without end would keep its queue, task and context in memory for every run that ever ended.
        """
        while (first := await queue.get()) is not None:
            queued = [first]
            try:
                await self._handle(Batch(self.run, queue), queued)
            except BaseException as error:
                behind = [queue.get_nowait() for _ in range(queue.qsize())]
                self._give_up([*queued, *behind], error)
                raise
            if self.run.status.over and queue.empty():
                self._queue = self._task = None
                return

    def _give_up(self, queued: Sequence[QueuedEvent | None], error: BaseException) -> None:
        """Fail everybody who waits for a reply, in this batch and in the queue."""
        self._failed = error
        for one in queued:
            if one is not None and not one.answer.done():
                one.answer.set_exception(error)
        log("run_stopped", level="error", run=self.run.run_id, reason=f"{type(error).__name__}: {error}")

    async def _handle(self, batch: Batch, queued: list[QueuedEvent]) -> None:
        """Decide what the first event and those behind it lead to, make it durable, and answer their senders."""
        self._step(batch, queued[0])
        # Whatever waits in the queue shares the transaction, and so one wait for the disk.
        while not batch.queue.empty() and self._join_next(batch, queued, batch.queue.get_nowait()):
            pass
        if batch.journal and self._may_wait(batch):
            await self._gather_more(batch, queued)
        await self._sum_at_once(batch, queued)
        before = self.run
        if batch.journal:
            await self._commit(batch, queued)
        # Before anybody hears of the next round: a site whose update is not yet acknowledged by then gives up the call.
        for one, reply in zip(queued, batch.replies, strict=True):
            if not one.answer.done():
                one.answer.set_result(reply)
        if batch.journal:
            self._announce(before)

    async def _sum_at_once(self, batch: Batch, queued: list[QueuedEvent]) -> None:
        """Form a small sum as soon as its last updates are here, and let what follows from it join the batch.

        These updates are then never stored: nobody has been told that they were accepted, and with the consensus that
        follows from them nobody asks for them again.
        """
        at_hand = {one.chunk[0]: one.chunk for one in queued if one.chunk and one.chunk[1] == 0}
        added = [effect for effect in batch.effects if isinstance(effect, Accumulate)]
        keys = [UpdateKey(effect.ref, effect.participant, effect.sha256) for effect in added]
        complete = any(isinstance(effect, Sum) for effect in batch.effects) and self.round_sum.is_small
        reopened = any(isinstance(effect, Discard) for effect in batch.effects)
        if not complete or reopened or not at_hand.keys() >= set(keys):
            return
        for key in keys:
            self.round_sum.add([at_hand[key][1:]])
        batch.effects = [effect for effect in batch.effects if not isinstance(effect, Accumulate | Sum)]
        event = await self.round_sum.outcome(batch.run, self._store.now)
        self._join_next(batch, queued, _unanswered(event))

    def _join_next(self, batch: Batch, queued: list[QueuedEvent], one: QueuedEvent | None) -> bool:
        """Add an event to the batch; False for the end of the queue, which stays there."""
        if one is None:
            batch.queue.put_nowait(_STOP)
            return False
        queued.append(one)
        self._step(batch, one)
        return True

    def _step(self, batch: Batch, one: QueuedEvent) -> None:
        """The step of an event. One that fails leaves the run as it was, and is refused: nothing else depends on it."""
        run, event = batch.run, one.event
        try:
            after, effects = step(self.rules, run, event)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            log("step_failed", level="error", run=run.run_id, message=event.kind, reason=reason)
            refusal = Reply(Fate.REJECTED, f"the aggregator could not process this message: {reason}")
            after, effects = run, (refusal,)
        if after is not run:
            batch.journal.append(event)
        batch.run = after
        batch.effects += effects
        batch.replies.append(next((effect for effect in effects if isinstance(effect, Reply)), None))

    def _may_wait(self, batch: Batch) -> bool:
        """Whether more messages may join the batch: it is small, and nobody waits for a change of stage."""
        return len(batch.replies) < min(BATCH_EVENTS, len(self.run.cohort)) and batch.run.stage() == self.run.stage()

    async def _gather_more(self, batch: Batch, queued: list[QueuedEvent]) -> None:
        """Add the messages of the next moment to the batch, until one of them completes the phase."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BATCH_SECONDS):
                while self._may_wait(batch) and self._join_next(batch, queued, await batch.queue.get()):
                    pass

    async def _commit(self, batch: Batch, queued: Sequence[QueuedEvent]) -> None:
        before, after = self.run, batch.run
        gone = [effect.ref for effect in batch.effects if isinstance(effect, Discard)]
        self._seq += len(batch.journal)
        adopted = any(isinstance(event, events.ConsensusReached) for event in batch.journal)
        reached = self.round_sum.pending if adopted else None
        consensus = reached.opened.consensus if reached else None
        for effect in batch.effects:
            if isinstance(effect, RenumberConsensus):
                consensus = renumbered(consensus or self.round_sum.consensus, effect)
            elif isinstance(effect, AdoptReturned):
                consensus, self.round_sum.opened_sum = self.returned.agreed, None
        commit = Commit(
            run=after,
            seq=self._seq,
            events=batch.journal,
            checkpoint=needs_checkpoint(before, after),
            chunks=[
                one.chunk for one in queued if one.chunk and one.event in batch.journal and one.chunk[0].ref not in gone
            ],
            consensus=consensus,
            round_view=(reached.view.round, reached.view.SerializeToString()) if reached else None,
            opened_sum=reached.opened.stored if reached else None,
            discard=gone,
        )
        await self._durably(commit)
        self.run = after
        if reached:
            self.round_sum.adopt(reached)
        if consensus:
            self.round_sum.consensus = consensus
        await self._perform(batch.effects, {chunk[0]: chunk for chunk in commit.chunks})
        if commit.discard or consensus:
            # Nobody waits for this: the next round begins while the updates of the last one are deleted.
            self._store.later(lambda store: store.tidy(after.run_id))

    async def _durably(self, commit: Commit) -> None:
        """Retry the transaction until it succeeds: a run on a full disk waits, and goes on when there is space."""
        logged = False
        while True:
            try:
                return await self._store.do(lambda store: store.commit(commit))
            except StoreFailed as error:
                if self._stopping:
                    raise
                if not logged:
                    log("run_held_up", level="error", run=commit.run.run_id, reason=str(error), hint=error.hint)
                logged = True
            await asyncio.sleep(RETRY_SECONDS)

    async def _perform(self, effects: Sequence[Effect], at_hand: Mapping[UpdateKey, Chunk]) -> None:
        ends = [place for place, effect in enumerate(effects) if isinstance(effect, Discard)]
        # Updates of an attempt that this batch ended are no longer stored.
        for effect in effects[ends[-1] :] if ends else effects:
            match effect:
                case Accumulate():
                    key = UpdateKey(effect.ref, effect.participant, effect.sha256)
                    chunk = at_hand.get(key)
                    if chunk and chunk[1] == 0:
                        self.round_sum.add([chunk[1:]])
                    else:
                        await self._store.do(lambda store, key=key: self.round_sum.add(store.updates.chunks(key)))  # type: ignore[misc]
                case Discard():
                    self.round_sum.running = None
                case Sum():
                    self.round_sum.start(self.run, self.tell, self._store.now)
                case Reply() | RenumberConsensus() | AdoptReturned():
                    pass

    def _announce(self, before: Run) -> None:
        if before.stage() != self.run.stage():
            self.percent.clear()
            self._stage_changed(self)
            if self.run.status.over:
                self.final.release_later()
                self.round_sum.end()
            if before.status is not self.run.status or before.reason != self.run.reason:
                log(f"run_{self.run.status.value}", run=self.run.run_id, reason=self.run.reason or None)
            if (here := self.run.attempt) and self.run.status is Status.RUNNING:
                ref, phase = here.ref, here.phase
                log("phase_entered", level="debug", run=ref.run_id, round=ref.round, attempt=ref.attempt, phase=phase)
        if deadline(self.rules, self.run) != self._due:
            self._arm()
        self.changed.fire()

    def _arm(self) -> None:
        """Set the one timer of the run to the deadline of its present phase."""
        if self._timer:
            self._timer.cancel()
        self._timer = None
        self._due = deadline(self.rules, self.run)
        if self._due is not None:
            delay = max(0.0, self._due - self._store.now())
            self._timer = asyncio.get_running_loop().call_later(delay, self._overdue)

    def _overdue(self) -> None:
        at = self._store.now()
        if self._due is not None and at < self._due:
            # The clock of the event loop ran ahead of the one by which deadlines are stored.
            self._arm()
            return
        # The timer has gone off: what follows is armed again even if it is due at the same moment, as the patience with
        # a member is that became late after a restart.
        self._due = None
        if self.run.status is Status.ENROLLING:
            self.tell(events.EnrolmentClosed(at=at, overdue=True))
        elif self.run.attempt is not None:
            here = self.run.attempt
            self.tell(events.DeadlinePassed(at=at, ref=here.ref, phase=here.phase.value))


def needs_checkpoint(before: Run, after: Run) -> bool:
    """Whether to store the full state and restart the journal: at a new attempt, status or export, or a set-up phase.

    Members of a secure run delete the keys that they have used, so a relayed roster or share must never be forgotten.
    """
    opened, was = (run.attempt.ref if run.attempt else None for run in (after, before))
    # The set-up is part of round 0.
    set_up = opened is not None and opened.round == 0 and before.phase != after.phase
    return set_up or opened != was or before.status is not after.status or before.export is not after.export
