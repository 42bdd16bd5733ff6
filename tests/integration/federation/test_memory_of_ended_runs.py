"""What stays in memory of a run that is over: nothing at its sites, no tensor at the aggregator."""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections import Counter, deque
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from types import CoroutineType
from typing import Any

import grpc
import numpy as np
import pytest

from aggregator.round_sum import FinalConsensus
from aggregator.run_registry import EnrolmentTimer
from aggregator.runner import Runner
from aggregator.store.run_rows import StoredSum
from dcfpca.identity import Role
from dcfpca.pki.keys import sign
from dcfpca.rpca.method import Consensus, Layout
from dcfpca.rpca.stage_list import Method
from dcfpca.secagg.fixed_point import BlockLayout
from dcfpca.spec import RunSpec, parse_spec
from dcfpca.terms import Terms
from dcfpca.v1 import admin_pb2 as pb
from dcfpca.v1 import rounds_pb2 as rounds
from dcfpca.v1.rounds_pb2_grpc import RoundServiceStub
from dcfpca.v1.types_pb2 import RoundRef
from dcfpca.wire.constants import PROTOCOL
from dcfpca.wire.round_messages import consent_bytes
from participant.driver import RunDriver
from participant.session import Session
from tests.support.services.honest import honest_sites
from tests.support.services.service import service

pytestmark = pytest.mark.slow
NAMES = ("ann", "bob", "cem")


def alive(*kinds: type) -> list[object]:
    """The objects of these kinds that are alive after a collection. A loop keeps up to a hundred cancelled timers, with
    their contexts, until they would be due: those are not left by a run."""
    gc.collect()
    found = [one for one in gc.get_objects() if type(one) in kinds]
    cancelled = [one for one in found if isinstance(one, asyncio.TimerHandle) and one.cancelled()]
    over = {id(one) for one in cancelled} | {id(one._context) for one in cancelled}  # type: ignore[attr-defined]
    return [one for one in found if id(one) not in over]


def most(left: Counter[type]) -> int:
    """How many there are of the most frequent kind."""
    return max(left.values(), default=0)


async def released(*kinds: type, but: list[object]) -> None:
    """Wait until none is alive but those named, which other tests hold; calls under way end by themselves."""
    known = {id(one) for one in but}
    async with asyncio.timeout(30):
        while [one for one in alive(*kinds) if id(one) not in known]:  # noqa: ASYNC110  nobody is told of a release
            await asyncio.sleep(0.05)


async def finished_run(operator: Any, **more: Any) -> str:
    keys = {"method": "gradient", "rows": 6, "rank": 2, "rounds": 2, "tolerance": 0, "participants": NAMES}
    spec = parse_spec(keys | {"closing_rounds": False} | more).canonical()
    run_id = (await operator.ProposeRun(pb.ProposeRunRequest(spec=spec, request_id=uuid.uuid4().hex))).run_id
    async for view in operator.WatchRun(pb.WatchRunRequest(run_id=run_id)):
        if view.status == "finished":
            break
    return str(run_id)


async def test_an_ended_run_is_released_by_its_sites_and_a_deleted_one_by_the_aggregator(tmp_path: Path) -> None:
    data = {name: np.random.default_rng(8).standard_normal((6, 5)) for name in NAMES}
    earlier = alive(RunDriver, Session, Runner, Consensus)
    async with service(tmp_path) as made, honest_sites(made, data):
        operator = made.operator()
        run_id = await finished_run(operator)
        await released(RunDriver, Session, but=earlier)
        assert [one for one in alive(Runner) if one not in earlier] == [made.run_registry.runners[run_id]]
        await operator.DeleteRun(pb.DeleteRunRequest(run_id=run_id))
        # The sites' streams are open, and have sent assignments of this run.
        await released(Runner, Consensus, but=earlier)
        assert made.run_registry.directory.connected() == set(NAMES)


@pytest.mark.parametrize("aggregation", ["plain", "secure"])
async def test_ended_runs_of_one_spec_leave_no_task_queue_timer_context_or_terms_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aggregation: str
) -> None:
    monkeypatch.setattr("aggregator.round_sum.RELEASE_SECONDS", 0.0)
    work = (asyncio.Task, asyncio.Queue, asyncio.Event, asyncio.TimerHandle, deque, Context, CoroutineType)
    kinds = (*work, EnrolmentTimer, StoredSum, Terms, RunSpec, Method, Layout, BlockLayout)
    data = {name: np.random.default_rng(8).standard_normal((6, 5)) for name in NAMES}
    runs = 30
    async with service(tmp_path) as made, honest_sites(made, data):
        operator = made.operator()
        for _ in range(3):
            await finished_run(operator, aggregation=aggregation)
        before = Counter(map(type, alive(*kinds)))
        for _ in range(runs):
            await finished_run(operator, aggregation=aggregation)
        left = Counter[type]()
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                # Calls and streams that are under way come and go; what a run left behind would be there once for each.
                while most(left := Counter(map(type, alive(*kinds))) - before) >= runs // 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        assert most(left) < runs // 2, f"left behind: {left}"


async def test_of_many_ended_runs_the_newest_are_in_memory_and_all_are_listed_read_and_started_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.run_registry.RUNS_AT_HAND", 2)
    data = {name: np.random.default_rng(8).standard_normal((6, 5)) for name in NAMES}
    earlier = alive(Runner, Consensus)
    async with service(tmp_path) as made, honest_sites(made, data):
        operator, registry = made.operator(), made.run_registry
        ids = [await finished_run(operator, export=True) for _ in range(5)]
        assert (list(registry.runners), list(registry.ended)) == (ids[3:], ids[:3])
        listed = (await operator.ListRuns(pb.ListRunsRequest())).runs
        assert [(one.run_id, one.status) for one in listed] == [(run_id, "finished") for run_id in reversed(ids)]
        assert [one.run_id for one in (await operator.ListRuns(pb.ListRunsRequest(limit=4))).runs] == ids[:0:-1]
        assert len((await operator.GetRun(pb.GetRunRequest(run_id=ids[0]))).rounds) == 3
        assert await model_of(operator, ids[0]) == await model_of(operator, ids[4])
        assert await finished_run(operator, warm_start=ids[1]) in registry.runners
        # A run that the store alone had stays in memory until everybody has answered for its export.
        view = await operator.RequestExport(pb.RequestExportRequest(run_id=ids[0]))
        async with asyncio.timeout(30):
            while view.awaited:
                view = await operator.GetExport(pb.GetExportRequest(run_id=ids[0], wait_ms=1000))
        assert len(view.files) + len(view.refusals) >= len(NAMES)
        await operator.DeleteRun(pb.DeleteRunRequest(run_id=ids[1]))
        assert ids[1] not in registry.ended
        await finished_run(operator)
        while len([one for one in alive(Runner) if one not in earlier]) > 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_site_that_was_away_is_told_that_a_run_ended_whose_end_the_store_alone_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.run_registry.RUNS_AT_HAND", 0)
    async with service(tmp_path) as made:
        operator, own = made.operator(), made.credentials(Role.PARTICIPANT, "ann")
        spec = parse_spec({"method": "gradient", "rows": 6, "rank": 2, "closing_rounds": False, "participants": NAMES})
        request = pb.ProposeRunRequest(spec=spec.canonical(), request_id=uuid.uuid4().hex)
        run_id, site = (await operator.ProposeRun(request)).run_id, RoundServiceStub(made.channel_of(own))
        said = consent_bytes(run_id, spec.digest(), "ann", accept=True, private=False, reasons=[])
        signature = sign(own.private_key, said)
        await site.Respond(
            rounds.RespondRequest(run_id=run_id, spec_sha256=spec.digest(), accept=True, signature=signature)
        )
        await operator.AbortRun(pb.AbortRunRequest(run_id=run_id))
        assert run_id in made.run_registry.ended
        seen = [rounds.Seen(ref=RoundRef(run_id=run_id))]
        stream = site.Subscribe(rounds.SubscribeRequest(protocol=PROTOCOL, software="test", rows=6, seen=seen))
        async with asyncio.timeout(10):
            told = await stream.read()
        assert (told.run_id, told.run_finished.status) == (run_id, "aborted")
        stream.cancel()


async def model_of(operator: Any, run_id: str) -> bytes:
    parts = [part async for part in operator.FetchModel(pb.FetchModelRequest(run_id=run_id))]
    return b"".join(part.chunk.data for part in parts[1:])


async def test_tensors_of_an_ended_run_are_in_the_store_alone_until_somebody_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {name: np.random.default_rng(8).standard_normal((6, 5)) for name in NAMES}
    async with service(tmp_path) as made, honest_sites(made, data):
        operator = made.operator()
        run_id = await finished_run(operator)
        runner = made.run_registry.runners[run_id]
        kept, before = runner.round_sum.encoded(), await model_of(operator, run_id)
        monkeypatch.setattr("aggregator.round_sum.RELEASE_SECONDS", 0.0)
        # Whoever asks, from now on the tensors are released in the next turn of the event loop.
        assert await model_of(operator, run_id) == before
        assert runner.round_sum.consensus.broadcast.tensor.size == 0
        assert runner.round_sum.encoded().header == kept.header
        assert (await runner.final.whole()).broadcast.tensor.tobytes() == kept.consensus.broadcast.tensor.tobytes()
        view = await operator.GetRun(pb.GetRunRequest(run_id=run_id))
        assert view.verdict.sentence
        # Sites fetch the final consensus of this one after its tensors have been released, or before.
        warm = await finished_run(operator, warm_start=run_id)
        assert made.run_registry.runners[warm].run.reason == runner.run.reason


async def test_a_consensus_damaged_in_the_store_is_told_in_its_verdict_and_spoils_no_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {name: np.random.default_rng(8).standard_normal((6, 5)) for name in NAMES}
    monkeypatch.setattr("aggregator.round_sum.RELEASE_SECONDS", 0.0)
    async with service(tmp_path) as made, honest_sites(made, data):
        operator = made.operator()
        damaged, sound = await finished_run(operator), await finished_run(operator)
        runner, store = made.run_registry.runners[damaged], made.run_registry.store
        await store.do(
            lambda it: it.connection.execute("UPDATE consensus SET body = x'00' WHERE run_id = ?", (damaged,))
        )
        # As after a restart: no verdict has been formed yet.
        runner.final = FinalConsensus(damaged, runner.terms, runner.round_sum, store)
        told = {view.run_id: view.verdict.sentence for view in (await operator.ListRuns(pb.ListRunsRequest())).runs}
        assert "cannot be read" in told[damaged]
        assert "cannot be read" not in told[sound]
        with pytest.raises(grpc.aio.AioRpcError, match="not what was written"):
            await model_of(operator, damaged)
