"""One member that spoils the set-up of its run: honest daemons complain, and the operator is told who did it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from dcfpca.secagg.fixed_cohort import Advert, FixedCohortSide, Roster, SealedShare
from dcfpca.secagg.fixed_cohort.group_secret import SEALED_BYTES
from dcfpca.spec import parse_spec
from dcfpca.v1 import admin_pb2 as admin
from dcfpca.v1 import rounds_pb2 as pb
from tests.support.fixed_cohort_site import WaitingSite
from tests.support.honest import honest_sites
from tests.support.service import Service, service

HONEST, CULPRIT = ("ann", "bob", "cem"), "mallory"
ROWS = 6
DATA = {name: np.random.default_rng(7).standard_normal((ROWS, 5)) for name in (*HONEST, CULPRIT)}

Hostile = Callable[[WaitingSite], None]


class HostileSide(FixedCohortSide):
    """Signs shares that it never committed to: bytes of the right length at random."""

    def share(self, roster: Roster) -> tuple[SealedShare, ...]:
        made = []
        for share in super().share(roster):
            false = replace(share, sealed=np.random.default_rng(1).bytes(SEALED_BYTES))
            made.append(replace(false, signature=self._identity.sign(false.statement(self.state.roster))))
        return tuple(made)


class ZeroKeySide(FixedCohortSide):
    """Advertises a key of small order, properly signed."""

    def advert(self) -> Advert:
        zero = replace(super().advert(), key=bytes(32))
        return replace(zero, signature=self._identity.sign(zero.statement()))


class CulpritSite(WaitingSite):
    """A member that behaves but for its side of the secure sum."""

    kind: type[FixedCohortSide] = HostileSide

    def _begin(self, run_id: str, wanted: pb.RunKeyWanted) -> None:
        super()._begin(run_id, wanted)
        assert self.side is not None
        self.side = self.kind(self.side.terms, self.identity, self.side.state)


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
        culprit = CulpritSite(live, CULPRIT, DATA[CULPRIT])
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
        culprit: Any = CulpritSite(live, CULPRIT, DATA[CULPRIT])
        culprit.kind = ZeroKeySide
        run_id = await propose(live)
        with pytest.raises(grpc.aio.AioRpcError, match="key"):
            await culprit.listen()
        view = await until(live, run_id, lambda view: list(view.awaited) == [CULPRIT])
        assert view.phase == "advertising"
        assert not view.complaints
