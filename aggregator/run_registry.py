"""All runs of this aggregator, who is connected, and what operators may ask for. Knows nothing of gRPC."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from aggregator.change_signal import Signal
from aggregator.enrolment_timing import Quiet
from aggregator.presence import Presence
from aggregator.run import events
from aggregator.run.backup_recovery import Seen, news_in
from aggregator.run.state import Run, Status
from aggregator.runner import Runner
from aggregator.store import participants
from aggregator.store.store import StoredRun
from aggregator.store_thread import Keeper
from aggregator.telemetry import Telemetry
from dcfpca.errors import BadInput, DcfpcaError
from dcfpca.logs import log
from dcfpca.methods import method_of
from dcfpca.rpca.method import Consensus
from dcfpca.spec import RunSpec

T = TypeVar("T")

KEEP_TELLING_SECONDS = 7 * 86400
"""How long participants that were away are told of a run that is over."""


class House:
    """The runs by id, newest last."""

    def __init__(self, keeper: Keeper, telemetry: Telemetry | None = None) -> None:
        self.keeper = keeper
        self.telemetry = telemetry or Telemetry()
        self.runners: dict[str, Runner] = {}
        self.stage = Signal()
        self.presence = Presence(self._presence_changed)
        self.introduced: dict[str, participants.Acquaintance] = {}
        self._quiet: dict[str, Quiet] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._proposing = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self.draining = False

    async def start(self) -> None:
        """Take up every run where it was, and give everybody the grace to come back."""
        known = await self.keeper.do(lambda store: participants.everyone(store.connection))
        self.introduced = {who.name: who for who in known}
        for stored in await self.keeper.do(lambda store: store.load_runs()):
            await self._add(stored, restarted=True)
        for runner in self.runners.values():
            for name in runner.run.cohort:
                self._leave_after_grace(runner, name)

    def drain(self) -> None:
        """End every stream, of participants and of operators that watch; the service is about to stop."""
        self.draining = True
        self.stage.fire()
        for runner in self.runners.values():
            runner.changed.fire()

    async def stop(self, patience: float = 10.0) -> None:
        """Stop every run where it is, once what operators asked for is done or, on a full disk, cannot be."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=patience)
        for timer in self._timers:
            timer.cancel()
        for quiet in self._quiet.values():
            quiet.cancel()
        await asyncio.gather(*(runner.stop() for runner in self.runners.values()))
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that is done to its end, its line in the audit log included, if the caller hangs up."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def propose(self, spec: RunSpec, operator: str, request_id: str) -> Runner:
        """Make a run of this spec; a repeated request id gives the run it made before."""
        return await self.finish(self._propose(spec, operator, request_id))

    async def _propose(self, spec: RunSpec, operator: str, request_id: str) -> Runner:
        async with self._proposing:
            earlier = await self.keeper.do(lambda store: store.run_of_request(request_id))
            return self.runners[earlier] if earlier else await self._begin(spec, operator, request_id)

    async def _begin(self, spec: RunSpec, operator: str, request_id: str) -> Runner:
        run = Run(run_id=_new_id(), created_at=self.keeper.now(), operator=operator, seal=secrets.token_bytes(32))
        begin, spec_bytes = self._opening(spec), spec.canonical()
        await self.keeper.do(lambda store: store.create_run(run, spec_bytes, request_id, begin))
        digest = spec.digest().hex()
        await self.keeper.record("run_proposed", actor=operator, run_id=run.run_id, spec_sha256=digest)
        log("run_proposed", run=run.run_id, method=spec.method, operator=operator)
        runner = await self._add(StoredRun(spec, spec_bytes, run, 0, begin))
        self.stage.fire()
        return runner

    def _opening(self, spec: RunSpec) -> Consensus:
        """The consensus of round 0; a warm start brings the subspace of an earlier run into the method's memory."""
        begin = method_of(spec).begin()
        if not spec.warm_start:
            return begin
        earlier = self.runners.get(spec.warm_start)
        if earlier is None or earlier.run.status is not Status.FINISHED:
            hint = "`dcfpca run list` shows the runs; a warm start needs one that is finished"
            raise BadInput(f"there is no finished run {spec.warm_start!r} to start from", hint)
        check_warm_start(spec, earlier.spec)
        U = earlier.method.model(earlier.sums.consensus)["U"]
        return replace(begin, memory={**begin.memory, "warm": U})

    async def rows_of_connected(self, seconds: float) -> int:
        """The rows that the connected participants have, for a spec that does not state them."""
        seen = self.stage.version
        try:
            async with asyncio.timeout(seconds):
                while not (told := self._rows_told()):
                    seen = await self.stage.wait(seen)
        except TimeoutError:
            hint = "start a participant first, or state rows in the spec"
            raise BadInput("the spec does not state rows, and no participant is connected to tell them", hint) from None
        ranked = told.most_common()
        if len(ranked) > 1 and ranked[0][1] == ranked[1][1]:
            counts = ", ".join(f"{rows} rows at {count}" for rows, count in ranked)
            raise BadInput(f"the connected participants do not agree on the rows: {counts}", "state rows in the spec")
        return ranked[0][0]

    def features_of_connected(self, rows: int) -> str:
        """The digest of the feature names that the connected participants with so many rows have; empty: no names."""
        here = self.presence.names()
        told = Counter(
            who.features for who in self.introduced.values() if who.name in here and who.features and who.rows == rows
        ).most_common()
        if len(told) > 1 and told[0][1] == told[1][1]:
            hint = "name the features in the spec; each site then chooses and orders its own by it"
            raise BadInput("the connected participants do not agree on the names or the order of the features", hint)
        return told[0][0].hex() if told else ""

    def runner(self, run_id: str) -> Runner | None:
        """The run of this id."""
        return self.runners.get(run_id)

    def telling(self) -> list[Runner]:
        """The runs that participants have to hear of."""
        oldest = self.keeper.now() - KEEP_TELLING_SECONDS
        return [r for r in self.runners.values() if not r.run.status.over or r.run.ended_at > oldest]

    async def introduce(self, who: participants.Acquaintance) -> None:
        """Remember what a participant said of itself when it connected."""
        self.introduced[who.name] = who
        await self.keeper.do(lambda store: participants.remember(store.connection, who))

    async def hear_of(self, name: str, seen: Sequence[Seen]) -> None:
        """Take in how far a participant has seen its runs go; one that a backup set back goes on beyond."""
        for one in seen:
            runner = self.runners.get(one.run_id)
            if runner is None or (runner.run.cohort and name not in runner.run.cohort):
                continue
            digest = runner.facts.consensus()[0].sha256
            news = news_in(runner.run, digest, name, one, self.keeper.now())
            if news is not None and not runner.run.status.over:
                log("site_ahead", level="warning", run=one.run_id, participant=name, round=one.round)
                # A run whose store has failed must not keep its sites from the others.
                with suppress(DcfpcaError):
                    await runner.post(news)

    def certificate_days(self, name: str) -> int:
        """Whole days until the certificate that this participant showed last expires."""
        end = datetime.fromtimestamp(self.introduced[name].not_after, UTC)
        return (end - datetime.fromtimestamp(self.keeper.now(), UTC)).days

    async def _add(self, stored: StoredRun, *, restarted: bool = False) -> Runner:
        runner = Runner(stored, self.keeper, lambda: self._stage_changed(stored.run.run_id))
        self.runners[stored.run.run_id] = runner
        self._quiet[stored.run.run_id] = Quiet(runner, self.presence, self.keeper.now)
        self.telemetry.stage_changed(runner.run, None, self.keeper.now())
        await (runner.restart() if restarted else runner.start())
        self._quiet[stored.run.run_id].look()
        return runner

    def _stage_changed(self, run_id: str) -> None:
        if run_id in self._quiet:
            self._quiet[run_id].look()
        runner = self.runners[run_id]
        self.telemetry.stage_changed(runner.run, runner.sums.finished, self.keeper.now())
        self.stage.fire()

    def look_at_enrolment(self, run_id: str) -> None:
        """Somebody answered a proposal: perhaps everybody has."""
        self._quiet[run_id].look()

    def _presence_changed(self, name: str) -> None:
        here, at = self.presence.is_here(name), self.keeper.now()
        for runner in self.runners.values():
            if runner.run.status is Status.ENROLLING:
                self._quiet[runner.run.run_id].look()
            elif name in runner.run.cohort and not runner.run.status.over:
                if here:
                    # Also when the run does not miss it yet: that it left may be on its way in.
                    runner.tell(events.Joined(at=at, participant=name))
                elif not here:
                    self._leave_after_grace(runner, name)
        self.stage.fire()

    def _leave_after_grace(self, runner: Runner, name: str) -> None:
        """Tell the run that somebody left, unless it comes back within the grace that the round's deadline allows."""
        if runner.run.status.over:
            return

        def gone() -> None:
            self._timers.discard(timer)
            if not self.presence.is_here(name) and not runner.run.status.over:
                runner.tell(events.Left(at=self.keeper.now(), participant=name))

        timer = asyncio.get_running_loop().call_later(runner.spec.grace_seconds, gone)
        self._timers.add(timer)

    def _rows_told(self) -> Counter[int]:
        here = self.presence.names()
        return Counter(who.rows for who in self.introduced.values() if who.name in here and who.rows)


def check_warm_start(spec: RunSpec, earlier: RunSpec) -> None:
    """Refuse a start from a run about other rows: its subspace would be nonsense here."""
    if earlier.rows != spec.rows:
        told = f"run {spec.warm_start} has {earlier.rows} rows and this one {spec.rows}"
        raise BadInput(f"the warm start does not fit: {told}", "start from a run about the same features")
    if "" not in (names := {earlier.features_sha256, spec.features_sha256}) and len(names) > 1:
        hint = "start from a run about the same features, in the same order"
        raise BadInput(f"the warm start does not fit: run {spec.warm_start} is about other features", hint)
    if earlier.scaling != spec.scaling:
        told = f'run {spec.warm_start} has scaling = "{earlier.scaling}"'
        raise BadInput(f"the warm start does not fit: {told}", "use the same scaling, or another run")


def _new_id() -> str:
    """Short enough to type, sortable by day, and not to be guessed."""
    return f"{datetime.now(UTC):%Y%m%d}-{secrets.token_hex(4)}"
