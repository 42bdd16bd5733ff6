"""What happens between the last update of a round and the opening of the next one."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path

import numpy as np

from dcfpca.v1 import rounds_pb2 as pb
from tests.integration.aggregator.test_upload_turns import NAMES, PATIENCE, enrol, propose, update
from tests.support.services.service import service


async def test_streams_are_woken_once_a_round_and_its_updates_are_deleted(tmp_path: Path) -> None:
    async with service(tmp_path) as aggregator, asyncio.timeout(PATIENCE):
        registry = aggregator.run_registry
        run_id = await propose(aggregator, participants=NAMES, rounds=1)
        stubs = [await enrol(aggregator, run_id, name) for name in NAMES]
        runner, woken = registry.runners[run_id], registry.stage.version
        header, payload = update(aggregator, run_id)
        payload = np.ones(len(payload) // 8).tobytes()  # no method goes on from zeros
        header.tensor.sha256, first = sha256(payload).digest(), header.ref.round
        await asyncio.gather(*(stub.SubmitWhole(pb.WholeUpdate(header=header, data=payload)) for stub in stubs))
        while runner.run.stage()[1] == first:
            await runner.changed.wait(runner.changed.version)
        assert registry.stage.version == woken + 1
        await registry.store.do(lambda _: None)  # whatever was queued before is done
        kept = (tmp_path / "store.db.updates").rglob("*")
        assert not [path for path in kept if path.name != run_id]
