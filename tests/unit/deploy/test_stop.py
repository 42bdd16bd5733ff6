"""Stopping the aggregator while its disk is full, as an operator does who is about to make room."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aggregator.proposal import Proposal
from aggregator.run import events
from aggregator.store.database import StoreFailed
from dcfpca.terms import Terms
from tests.support.runs.rules import spec_of
from tests.support.services.service import service


async def test_an_order_that_waits_for_room_on_the_disk_does_not_keep_the_service_from_stopping(tmp_path: Path) -> None:
    async with service(tmp_path) as made:
        registry, store = made.run_registry, made.run_registry.store.store
        runner = await registry.propose(Proposal(Terms.of(spec_of()), "op", "request-1"))
        pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
        store.connection.execute(f"PRAGMA max_page_count = {pages}")
        order = asyncio.create_task(registry.complete(runner.post(events.Aborted(at=0.0, reason="x" * 100_000))))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(registry.stop(patience=0.1), 10)
        with pytest.raises(StoreFailed, match="full"):
            await order
        store.connection.execute("PRAGMA max_page_count = 100000")
