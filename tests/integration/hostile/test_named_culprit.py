"""One member that spoils the set-up of its run: honest daemons complain, and the operator is told who did it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dcfpca.secagg.messages import Roster, SealedShare
from dcfpca.secagg.set_up import SEALED_BYTES, share_statement
from dcfpca.secagg.site import SecureSite
from dcfpca.spec import parse_spec
from dcfpca.v1 import admin_pb2 as admin
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire import round_messages
from tests.support.services.honest import honest_sites
from tests.support.services.secure_site import WaitingSite
from tests.support.services.service import Service, service

HONEST, CULPRIT = ("ann", "bob", "cem"), "mallory"
ROWS = 6
DATA = {name: np.random.default_rng(7).standard_normal((ROWS, 5)) for name in (*HONEST, CULPRIT)}


class HostileSide(SecureSite):
    """Signs shares that it never committed to: bytes of the right length at random."""

    def share(self, roster: Roster) -> tuple[SealedShare, ...]:
        made = []
        for share in super().share(roster):
            sealed = np.random.default_rng(1).bytes(SEALED_BYTES)
            statement = share_statement(self.state.roster, self.name, share.receiver, sealed)
            made.append(SealedShare(self.name, share.receiver, sealed, self._identity.sign(statement)))
        return tuple(made)


class FalseSharesSite(WaitingSite):
    """A member that behaves but for its shares."""

    def _begin(self, run_id: str, wanted: pb.RunKeyWanted) -> None:
        super()._begin(run_id, wanted)
        assert self.side is not None
        self.side = HostileSide(self.side.terms, self.identity, self.side.state)


class ZeroKeySite(WaitingSite):
    """Advertises a key of small order, properly signed; `receipts` is what it is told."""

    def __init__(self, live: Service, name: str) -> None:
        super().__init__(live, name, DATA[name])
        self.receipts: asyncio.Queue[types.Receipt] = asyncio.Queue()

    async def _do(self, told: pb.Assignment, what: str) -> None:
        if what != "run_key_wanted":
            await super()._do(told, what)
            return
        self._begin(told.run_id, told.run_key_wanted)
        assert self.side is not None
        zero = replace(self.side.advert(), key=bytes(32))
        key = round_messages.advert_to_wire(replace(zero, signature=self.identity.sign(zero.statement())))
        request = pb.AdvertiseRunKeyRequest(run_id=told.run_id, key=key)
        self.receipts.put_nowait(await self.stub.AdvertiseRunKey(request))


async def propose(live: Service) -> str:
    keys = {"method": "gradient", "rows": ROWS, "rank": 2, "rounds": 2, "participants": (*HONEST, CULPRIT)}
    spec = parse_spec({**keys, "closing_rounds": False, "round_seconds": 60})
    request = admin.ProposeRunRequest(spec=spec.canonical(), request_id=uuid.uuid4().hex)
    return str((await live.operator().ProposeRun(request)).run_id)


async def until(live: Service, run_id: str, holds: Callable[[admin.RunView], bool]) -> admin.RunView:
    async with asyncio.timeout(30):
        async for view in live.operator().WatchRun(admin.WatchRunRequest(run_id=run_id)):
            if holds(view):
                return view
    raise AssertionError("the watch ended")


@pytest.mark.timeout(90)
async def test_a_member_that_signs_false_shares_is_named_to_the_operator(tmp_path: Path) -> None:
    async with service(tmp_path) as live, honest_sites(live, {name: DATA[name] for name in HONEST}):
        culprit = FalseSharesSite(live, CULPRIT, DATA[CULPRIT])
        run_id = await propose(live)
        listening = asyncio.create_task(culprit.listen())
        view = await until(live, run_id, lambda view: view.status == "paused")
        assert f"accuses {CULPRIT}" in view.reason
        view = await until(live, run_id, lambda view: len(view.complaints) == len(HONEST))
        assert {one.participant for one in view.complaints} == set(HONEST)
        assert {(one.accused, one.error) for one in view.complaints} == {(CULPRIT, "TamperedShare")}
        listening.cancel()


@pytest.mark.timeout(90)
async def test_a_key_that_nobody_can_use_is_refused_at_intake_and_its_owner_awaited_by_name(tmp_path: Path) -> None:
    async with service(tmp_path) as live, honest_sites(live, {name: DATA[name] for name in HONEST}):
        culprit = ZeroKeySite(live, CULPRIT)
        run_id = await propose(live)
        listening = asyncio.create_task(culprit.listen())
        receipt = await culprit.receipts.get()
        assert receipt.fate == types.FATE_REJECTED
        assert CULPRIT in receipt.reason
        view = await until(live, run_id, lambda view: list(view.awaited) == [CULPRIT])
        assert view.phase == "advertising"
        assert not view.complaints
        listening.cancel()
