"""One run in motion: events go in, the rules decide, the store is written, and only then is anybody answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aggregator.assignment_facts import FactsOfStage
from aggregator.change_signal import Signal
from aggregator.round_sum import Summing
from aggregator.run import events
from aggregator.run.backup_recovery import recast
from aggregator.run.effects import Accumulate, Discard, Effect, Recast, Reply, Sum
from aggregator.run.phases import deadline
from aggregator.run.rules import step
from aggregator.run.state import Run, Status
from aggregator.store.database import StoreFailed
from aggregator.store.store import Commit, StoredRun
from aggregator.store.update_files import UploadKey
from aggregator.store_thread import Keeper
from dcfpca.logs import log
from dcfpca.methods import method_of
from dcfpca.rpca.method import Consensus

_STOP = None
RETRY_SECONDS = 1.0
COMPANY_SECONDS = 0.01
"""How long an update that completes nothing waits for others, to be made durable and added with them."""
SMALL_COMPANY_SECONDS = 0.05
"""As long for a message without an update: only its sender waits, and has nothing to do before a phase is complete."""
COMPANY = 16
"""So many are enough: what they bring with them stays in memory meanwhile."""

Piece = tuple[UploadKey, int, bytes]
"""A part of an update: of which one, where it starts, and its bytes."""


@dataclass(slots=True)
class Letter:
    """An event on its way in, with the last piece of an update that it completes."""

    event: events.Event
    answer: asyncio.Future[Reply | None]
    chunk: Piece | None = None


@dataclass(slots=True)
class Traffic:
    """Payload bytes of the open round."""

    received: int = 0
    sent: int = 0


@dataclass(slots=True)
class Batch:
    """What a handful of events led to, to be committed at once."""

    run: Run
    journal: list[events.Event] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    replies: list[Reply | None] = field(default_factory=list)


class Runner:
    """Owns the state of one run. Everybody else posts events and reads `run`."""

    def __init__(self, stored: StoredRun, keeper: Keeper, stage_changed: Callable[[], None]) -> None:
        assert stored.consensus is not None
        self.spec, self.spec_bytes = stored.spec, stored.spec_bytes
        self.run = stored.run
        self.method = method_of(stored.spec)
        self.traffic = Traffic()
        self.percent: dict[str, int] = {}
        self.uploads: dict[str, asyncio.Future[Piece | None]] = {}
        self.changed = Signal()
        self.sums = Summing(self.spec, self.method, stored.consensus)
        self.facts = FactsOfStage(self)
        self._seq = stored.seq
        self._keeper, self._stage_changed = keeper, stage_changed
        self._inbox: asyncio.Queue[Letter | None] = asyncio.Queue()
        self._timer: asyncio.TimerHandle | None = None
        self._due: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None
        self._stopping = False

    async def start(self) -> None:
        """Begin with a run that was just proposed."""
        self._task = asyncio.create_task(self._work(), name=f"run {self.run.run_id}")
        self._arm()

    async def restart(self) -> None:
        """Take up a run where the store left it."""
        # Before any timer is set: those who lost their connections must have the time to come back.
        self.tell(events.Restarted(at=self._keeper.now()))
        lost = await self._rebuild() if not self.run.status.over else False
        self._task = asyncio.create_task(self._work(), name=f"run {self.run.run_id}")
        if self.run.round is not None and self.run.phase == "summing" and not lost:
            self._sum(Sum(self.run.round.round, self.run.round.attempt))

    async def _rebuild(self) -> bool:
        """Form the running sum again; whether updates that had been accepted are lost."""
        here = self.run.round
        lost = await self._keeper.do(lambda store: self.sums.rebuild(store, self.run)) if here is not None else []
        if here is not None and lost:
            reason = f"the stored updates of {', '.join(lost)} are gone or torn"
            self.tell(events.UpdatesLost(at=self._keeper.now(), round=here.round, attempt=here.attempt, reason=reason))
        return bool(lost)

    async def stop(self) -> None:
        """Finish the batch at hand and stop; the store has everything."""
        self._stopping = True
        if self._timer:
            self._timer.cancel()
        self._inbox.put_nowait(_STOP)
        if self._task:
            await asyncio.gather(self._task, return_exceptions=True)
        await self.sums.stop()

    async def post(self, event: events.Event, chunk: Piece | None = None) -> Reply | None:
        """Hand in an event; returns when what it led to is durable. Raises if the run's store has failed."""
        if self._failed:
            raise self._failed
        letter = Letter(event, asyncio.get_running_loop().create_future(), chunk)
        self._inbox.put_nowait(letter)
        return await letter.answer

    def tell(self, event: events.Event) -> None:
        """Hand in an event that needs no answer."""
        future: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._inbox.put_nowait(Letter(event, future))

    async def _work(self) -> None:
        while True:
            letters = await self._take()
            if letters is None:
                return
            try:
                await self._handle(letters)
            except BaseException as error:
                self._give_up(letters, error)
                raise

    def _give_up(self, letters: Sequence[Letter], error: BaseException) -> None:
        """Nobody may wait for an answer that will not come: neither those at hand nor those behind them."""
        self._failed = error
        behind = [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]
        for letter in (*letters, *behind):
            if letter is not None and not letter.answer.done():
                letter.answer.set_exception(error)
        log("run_stopped", level="error", run=self.run.run_id, reason=f"{type(error).__name__}: {error}")

    async def _take(self) -> list[Letter] | None:
        """Everything that has arrived: one transaction, and so one wait for the disk, serves them all."""
        first = await self._inbox.get()
        letters = [] if first is None else [first]
        while letters and not self._inbox.empty():
            letter = self._inbox.get_nowait()
            if letter is None:
                self._inbox.put_nowait(None)
                break
            letters.append(letter)
        return letters or None

    async def _handle(self, letters: list[Letter]) -> None:
        batch = Batch(self.run)
        self._step(batch, letters)
        if batch.journal and self._may_wait(batch):
            await self._company(batch, letters)
        if batch.journal:
            await self._commit(batch, letters)
        for letter, reply in zip(letters, batch.replies, strict=True):
            if not letter.answer.done():
                letter.answer.set_result(reply)

    def _step(self, batch: Batch, letters: Sequence[Letter]) -> None:
        for letter in letters:
            after, effects = step(self.spec, batch.run, letter.event)
            if after is not batch.run:
                batch.journal.append(letter.event)
            batch.run = after
            batch.effects += effects
            batch.replies.append(next((effect for effect in effects if isinstance(effect, Reply)), None))

    def _may_wait(self, batch: Batch) -> bool:
        """Whether nobody else has anything to do before more messages come, and more are on their way."""
        return len(batch.replies) < min(COMPANY, len(self.run.cohort)) and batch.run.stage() == self.run.stage()

    async def _company(self, batch: Batch, letters: list[Letter]) -> None:
        """Let what comes in the next moment join the batch, until it completes the phase: one transaction for all."""
        patience = COMPANY_SECONDS if any(letter.chunk for letter in letters) else SMALL_COMPANY_SECONDS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while self._may_wait(batch):
                    letter = await self._inbox.get()
                    if letter is None:
                        self._inbox.put_nowait(_STOP)
                        return
                    letters.append(letter)
                    self._step(batch, [letter])

    async def _commit(self, batch: Batch, letters: Sequence[Letter]) -> None:
        before, after = self.run, batch.run
        self._seq += len(batch.journal)
        reached, consensus = self.sums.reached(batch.journal), self._consensus_after(batch)
        commit = Commit(
            run=after,
            seq=self._seq,
            events=batch.journal,
            checkpoint=_is_turn(before, after),
            chunks=[letter.chunk for letter in letters if letter.chunk and letter.event in batch.journal],
            consensus=consensus,
            round_view=(reached.view.round, reached.view.SerializeToString()) if reached else None,
            discard=[(e.round, e.attempt) for e in batch.effects if isinstance(e, Discard)],
        )
        await self._durably(commit)
        self.run = after
        if reached:
            self.sums.adopt(reached)
        if consensus:
            self.sums.consensus = consensus
        await self._perform(_still_wanted(batch.effects), {chunk[0]: chunk for chunk in commit.chunks})
        self._announce(before)

    def _consensus_after(self, batch: Batch) -> Consensus | None:
        """The consensus that a batch of events leads to, where it is another one."""
        reached = self.sums.reached(batch.journal)
        numbered = [effect for effect in batch.effects if isinstance(effect, Recast)]
        if numbered:
            return recast(reached.consensus if reached else self.sums.consensus, numbered[-1])
        return reached.consensus if reached else None

    async def _durably(self, commit: Commit) -> None:
        """Write until it is written: a full disk holds the run up, and room lets it go on by itself."""
        told = False
        while True:
            try:
                return await self._keeper.do(lambda store: store.commit(commit))
            except StoreFailed as error:
                if self._stopping:
                    raise
                if not told:
                    log("run_held_up", level="error", run=commit.run.run_id, reason=str(error), hint=error.hint)
                told = True
            await asyncio.sleep(RETRY_SECONDS)

    async def _perform(self, effects: Sequence[Effect], at_hand: Mapping[UploadKey, Piece]) -> None:
        for effect in effects:
            match effect:
                case Accumulate():
                    await self._accumulate(effect, at_hand)
                case Discard():
                    self.sums.discard()
                case Sum():
                    self._sum(effect)
                case Reply() | Recast():
                    pass

    async def _accumulate(self, update: Accumulate, at_hand: Mapping[UploadKey, Piece]) -> None:
        key = UploadKey(self.run.run_id, update.round, update.attempt, update.participant, update.sha256)
        piece = at_hand.get(key)
        if piece and piece[1] == 0:
            self.sums.add(update.round, 0, piece[2])
            return
        await self._keeper.do(lambda store: self.sums.add_stored(store, key))

    def _sum(self, effect: Sum) -> None:
        self.sums.start(self, effect, self._keeper.now)

    def _announce(self, before: Run) -> None:
        if before.stage() != self.run.stage():
            self.percent.clear()
            self._stage_changed()
            self._tell_log(before)
        if deadline(self.spec, self.run) != self._due:
            self._arm()
        self.changed.fire()

    def _tell_log(self, before: Run) -> None:
        at = self.run.round
        if before.status is not self.run.status or before.reason != self.run.reason:
            log(f"run_{self.run.status.value}", run=self.run.run_id, reason=self.run.reason or None)
        if at and self.run.status is Status.RUNNING:
            log("phase_entered", level="debug", run=self.run.run_id, round=at.round, attempt=at.attempt, phase=at.phase)

    def _arm(self) -> None:
        """One timer per run, set from the stored times; a restart only moves what came too soon after it."""
        if self._timer:
            self._timer.cancel()
        self._due = deadline(self.spec, self.run)
        if self._due is not None:
            delay = max(0.0, self._due - self._keeper.now())
            self._timer = asyncio.get_running_loop().call_later(delay, self._overdue)

    def _overdue(self) -> None:
        at = self._keeper.now()
        if self.run.status is Status.ENROLLING:
            self.tell(events.EnrolmentClosed(at=at, overdue=True))
        elif self.run.round is not None:
            here = self.run.round
            self.tell(events.DeadlinePassed(at=at, round=here.round, attempt=here.attempt, phase=here.phase.value))


def _still_wanted(effects: Sequence[Effect]) -> Sequence[Effect]:
    """Updates of an attempt that the same batch of events ended are gone from the store: they are not added."""
    ends = [place for place, effect in enumerate(effects) if isinstance(effect, Discard)]
    return effects[ends[-1] :] if ends else effects


def _is_turn(before: Run, after: Run) -> bool:
    """A new attempt, status or export: worth a full copy of the state, after which the journal starts anew."""
    opened = after.round and (after.round.round, after.round.attempt)
    was = before.round and (before.round.round, before.round.attempt)
    return opened != was or before.status is not after.status or before.export is not after.export
