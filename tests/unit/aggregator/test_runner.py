"""The runner between rules and store: what is answered is durable, and nothing that is posted is left unanswered."""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator import round_sum
from aggregator import runner as runner_module
from aggregator.run import events
from aggregator.run.state import Run
from aggregator.runner import Chunk, Runner
from aggregator.store.audit import Signer
from aggregator.store.database import StoreFailed
from aggregator.store.run_rows import StoredRun
from aggregator.store.store import Store
from aggregator.store.thread import StoreThread
from aggregator.store.update_files import UpdateKey
from dcfpca.errors import BadInput
from dcfpca.methods import method_of
from dcfpca.run_references import AttemptRef
from dcfpca.spec import RunSpec
from dcfpca.wire.receipt import Fate
from tests.support.runs.rules import NAMES, spec_of
from tests.support.runs.stored_runs import load_runs
from tests.support.services.stores import OpenStore

SPEC = spec_of(method="gradient", rows=8, rank=2)


@asynccontextmanager
async def running(
    path: Path, open_store: OpenStore = Store, spec: RunSpec = SPEC
) -> AsyncIterator[tuple[Runner, Store]]:
    """A run whose cohort has enrolled."""
    store = open_store(path)
    thread = StoreThread(store, Signer(lambda data: data, b""), "test")
    fresh = not load_runs(store)
    if fresh:
        store.create_run(
            Run(run_id="r1", created_at=thread.now()), spec.canonical(), "request-1", method_of(spec).begin()
        )
    (stored,) = load_runs(store)
    made = Runner(StoredRun(*(getattr(stored, name) for name in StoredRun.__slots__)), thread, lambda _: None)
    await (made.start() if fresh else made.restart())
    try:
        for name in NAMES:
            await made.post(events.Responded(at=thread.now(), participant=name, accept=True))
        yield made, store
    finally:
        await made.stop()
        thread.close()


def update_of(made: Runner, who: str, value: float) -> tuple[events.UpdateReceived, Chunk]:
    """An update of the open round, all of one value, in one piece."""
    here = made.run.attempt
    assert here is not None
    body = np.full(made.terms.method.stage(made.round_sum.consensus.stage).up.size, value).tobytes()
    digest = hashlib.sha256(body).digest()
    event = events.UpdateReceived(at=0.0, sha256=digest, size=len(body), ref=here.ref, participant=who)
    return event, (UpdateKey(here.ref, who, event.sha256), 0, body)


async def test_of_two_updates_posted_at_once_the_accepted_one_is_summed(open_store: OpenStore, tmp_path: Path) -> None:
    """Also when both reach the store in one batch: the sum after a restart must be the sum before it."""
    async with running(tmp_path / "store.db", open_store) as (made, _):
        one, other = update_of(made, "ann", 1.0), update_of(made, "ann", 5.0)
        first, second = await asyncio.gather(made.post(*one), made.post(*other))
        assert first is not None
        assert second is not None
        assert (first.fate, second.fate) == (Fate.ACCEPTED, Fate.REJECTED)
        assert made.round_sum.running is not None
        assert set(made.round_sum.running.total().tolist()) == {1.0}


async def test_messages_that_complete_a_phase_together_are_made_durable_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One who came early waits for company, unanswered; the last one ends the wait, however long it might be."""
    monkeypatch.setattr(runner_module, "BATCH_SECONDS", 60.0)
    async with running(tmp_path / "store.db") as (made, store):
        commits: list[int] = []
        really = store.commit

        def counted(commit: Any) -> None:
            commits.append(len(commit.events))
            really(commit)

        monkeypatch.setattr(store, "commit", counted)
        posted: list[asyncio.Task[Any]] = []
        for name in NAMES:
            assert not any(post.done() for post in posted)
            posted.append(asyncio.create_task(made.post(*update_of(made, name, 1.0))))
            for _ in range(10):
                await asyncio.sleep(0)
        replies = await asyncio.gather(*posted)
        assert [reply and reply.fate for reply in replies] == [Fate.ACCEPTED] * len(NAMES)
        assert commits == [len(NAMES) + 1]  # with the consensus that follows from them
        assert not list(store.updates.directory.rglob("*appended*"))  # so that nobody needs them any more


async def test_a_message_without_company_is_answered_all_the_same(tmp_path: Path) -> None:
    async with running(tmp_path / "store.db") as (made, _):
        reply = await asyncio.wait_for(made.post(*update_of(made, "ann", 1.0)), 10)
        assert reply is not None
        assert reply.fate is Fate.ACCEPTED


async def test_an_update_and_the_end_of_its_attempt_in_one_batch_do_not_stop_the_run(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with running(tmp_path / "store.db", open_store) as (made, store):
        event, piece = update_of(made, "ann", 1.0)
        # In two pieces, so that it is read back from the store when it is added.
        half = len(piece[2]) // 16 * 8
        store.updates.add(piece[0], 0, piece[2][:half])
        overdue = events.DeadlinePassed(at=made._store.now(), ref=AttemptRef("r1", 0, 1), phase="uploading")
        answers = await asyncio.gather(made.post(event, (piece[0], half, piece[2][half:])), made.post(overdue))
        assert answers[0] is not None
        assert answers[0].fate is Fate.ACCEPTED
        assert made.run.attempt is not None
        assert made.run.attempt.ref.attempt == 2
        again, chunk = update_of(made, "ann", 2.0)
        reply = await made.post(again, chunk)
        assert reply is not None
        assert reply.fate is Fate.ACCEPTED
        assert made.round_sum.running is not None
        assert set(made.round_sum.running.total().tolist()) == {2.0}


async def test_a_full_disk_holds_the_run_up_and_room_lets_it_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "RETRY_SECONDS", 0.01)
    async with running(tmp_path / "store.db") as (made, store):
        pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
        store.connection.execute(f"PRAGMA max_page_count = {pages}")
        long = events.Responded(at=0.0, participant="dag", accept=False, reasons=("x" * 100_000,))
        posted = asyncio.create_task(made.post(long))
        done, _ = await asyncio.wait([posted], timeout=0.2)
        assert not done, "it may not be acknowledged before it is durable"
        store.connection.execute("PRAGMA max_page_count = 100000")
        reply = await asyncio.wait_for(posted, 10)
        assert reply is not None
        assert reply.fate is Fate.ACCEPTED
        (stored,) = load_runs(store)
        assert "dag" in stored.run.refusals


async def test_a_store_that_fails_for_good_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "store.db") as (made, store):

        def broken(*_: Any) -> None:
            raise BadInput("the store is damaged")

        monkeypatch.setattr(store, "commit", broken)
        aborted = events.Aborted(at=0.0, reason="x")
        first = asyncio.create_task(made.post(aborted))
        await asyncio.sleep(0)
        behind = asyncio.create_task(made.post(aborted))
        for task in (first, behind):
            with pytest.raises(BadInput, match="damaged"):
                await asyncio.wait_for(task, 10)
        with pytest.raises(BadInput, match="damaged"):
            await made.post(aborted)


async def test_a_restarted_runner_sums_what_had_been_accepted(open_store: OpenStore, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with running(path, open_store) as (made, _):
        await made.post(*update_of(made, "ann", 1.0))
        await made.post(*update_of(made, "bob", 2.0))
        before = made.run
    async with running(path, open_store) as (again, _):
        assert again.run.attempt == before.attempt
        assert again.round_sum.running is not None
        assert set(again.round_sum.running.total().tolist()) == {3.0}


async def test_a_large_sum_that_was_not_formed_before_a_restart_is_formed_after_it(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_sum, "ON_LOOP_BYTES", -1)
    path = tmp_path / "store.db"
    with monkeypatch.context() as killed:
        killed.setattr(round_sum.RoundSum, "start", lambda *_: None)
        async with running(path, open_store) as (made, _):
            await asyncio.gather(*(made.post(*update_of(made, name, 1.0)) for name in NAMES))
            assert made.run.phase == "summing"
    async with running(path, open_store) as (again, _), asyncio.timeout(10):
        while again.run.attempt is None or again.run.attempt.ref.round == 0:
            await again.changed.wait(again.changed.version)


async def test_updates_of_a_small_sum_are_not_acknowledged_before_what_follows_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are never stored, so that a run that dies before the commit must ask for all of them again."""
    async with running(tmp_path / "store.db") as (made, store):

        def dies(*_: Any) -> None:
            raise BadInput("killed")

        monkeypatch.setattr(store, "commit", dies)
        posted = [made.post(*update_of(made, name, 1.0)) for name in NAMES]
        assert {type(reply) for reply in await asyncio.gather(*posted, return_exceptions=True)} == {BadInput}
    monkeypatch.undo()
    async with running(tmp_path / "store.db") as (again, _):
        assert again.run.attempt is not None
        assert (again.run.attempt.ref.round, dict(again.run.attempt.updates)) == (0, {})
    del posted
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_a_stopping_runner_does_not_wait_for_a_full_disk(tmp_path: Path) -> None:
    async with running(tmp_path / "store.db") as (made, store):
        pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
        store.connection.execute(f"PRAGMA max_page_count = {pages}")
        long = events.Responded(at=0.0, participant="dag", accept=False, reasons=("x" * 100_000,))
        posted = asyncio.create_task(made.post(long))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(made.stop(), 10)
        with pytest.raises(StoreFailed, match="full"):
            await posted
        store.connection.execute("PRAGMA max_page_count = 100000")
