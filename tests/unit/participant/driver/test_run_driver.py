"""The driver without an aggregator: what it saves, what it leaves alone, what it does not do twice."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dcfpca.identity import Role
from dcfpca.pki.ca_directory import create_authority
from dcfpca.pki.credential_files import issue_credentials
from dcfpca.secagg.errors import LostState, OutOfTurn
from dcfpca.spec import RunSpec
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from participant import wire_codec
from participant.config import Config
from participant.driver import RunDriver, SiteServices
from participant.egress import Egress
from participant.engine.thread_engine import Engine
from participant.link import Link
from participant.local_site import LocalSite, open_site
from participant.policy import SitePolicy
from participant.session import Consent, events
from participant.state.ledger import PRIVACY_CHARGE
from participant.state.store import Store

SPEC = RunSpec(rows=6, rank=2, participants=("a", "b", "c"))
# The cohort of a plain run may shrink, and a site withdraws when it is too small; that of a secure run may not.
PLAIN = RunSpec(rows=6, rank=2, participants=("a", "b", "c"), aggregation="plain")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    authority = create_authority(tmp_path / "ca", "acme", datetime.now(UTC))
    files = issue_credentials(authority, Role.PARTICIPANT, "a", tmp_path, now=datetime.now(UTC))
    np.save(tmp_path / "data.npy", np.random.default_rng(0).standard_normal((6, 9)))
    tables: dict[str, Any] = {
        # Nothing listens on the discard port of a test machine: calls wait, as they do when the network is down.
        "aggregator": {"address": "127.0.0.1:9"},
        "identity": {"ca": files.ca, "cert": files.certificate, "key": files.key},
        "data": {"path": tmp_path / "data.npy"},
        "state": {"dir": tmp_path / "state"},
        "results": {"dir": tmp_path / "results"},
        "engine": {"threads": 1},
    }
    return Config.model_validate(tables)


@pytest.fixture
async def services(config: Config) -> AsyncIterator[SiteServices]:
    site, store = open_site(config), Store(config.state.dir)
    link = Link(config.aggregator.address, site.credentials)
    yield SiteServices(site, store, link, Egress(link, store.ledger, config.policy), Engine(1), config.results.dir)
    await link.close()
    store.close()


def opened(attempt: int = 1, spec: RunSpec = SPEC) -> pb.Assignment:
    ref = types.RoundRef(run_id="run-1", round=0, attempt=attempt)
    header = types.TensorHeader(dtype=types.DTYPE_FLOAT64, sha256=bytes(32))
    told = pb.RoundOpened(ref=ref, spec_sha256=spec.digest(), cohort=["a", "b", "c"], consensus=header, stage="open")
    return pb.Assignment(run_id="run-1", key="k", round_opened=told)


def enrolled(services: SiteServices, spec: RunSpec = SPEC) -> RunDriver:
    services.store.save_consent("run-1", Consent(spec, spec.digest(), True, (), False), 1)
    return RunDriver("run-1", services, services.store.run("run-1"))


def deliver(driver: RunDriver, assignment: pb.Assignment) -> None:
    driver.take(wire_codec.decode(assignment), assignment.SerializeToString)


def key_wanted() -> pb.Assignment:
    wanted = pb.RunKeyWanted(spec_sha256=SPEC.digest(), cohort=["a", "b", "c"])
    return pb.Assignment(run_id="run-1", key="k", run_key_wanted=wanted)


async def test_the_key_of_a_run_is_saved_before_anything_is_sent_and_kept_for_repeats(services: SiteServices) -> None:
    driver = enrolled(services)
    deliver(driver, key_wanted())
    slots = services.store.key_slots("run-1")
    assert len(slots) == 2
    # The tasks that send have not had a turn yet.
    assert list(services.store.ledger.entries()) == []
    deliver(driver, key_wanted())
    assert services.store.key_slots("run-1") == slots
    await driver.stop()


async def test_a_private_run_is_charged_before_anything_leaves_and_is_answered_with_no_other_data_or_persons(
    services: SiteServices,
) -> None:
    spec = RunSpec.model_validate({"rows": 6, "rank": 2, "privacy": {"epsilon": 1.0}})
    services.site.facts = replace(services.site.facts, policy=SitePolicy(min_columns=2))
    driver = RunDriver("run-1", services)
    driver.take(events.Proposed(spec.canonical(), spec.digest()))
    # The tasks that send have not had a turn yet.
    assert [entry.item.kind for entry in services.store.ledger.entries()] == [PRIVACY_CHARGE]
    same = RunDriver("run-1", services, services.store.run("run-1")).session.secure
    assert same is not None
    with pytest.raises(OutOfTurn):
        _ = same.side
    services.site.matrix = replace(services.site.matrix, persons=("ann",) * 9)
    other = RunDriver("run-1", services, services.store.run("run-1")).session.secure
    assert other is not None
    with pytest.raises(LostState):
        _ = other.side
    await driver.stop()


async def test_what_could_not_be_saved_stops_the_daemon_and_nothing_of_it_leaves(
    services: SiteServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(services.store, "save_joining", fails)
    services.site.facts = replace(services.site.facts, policy=SitePolicy(min_columns=2, allow_plain=True))
    driver = RunDriver("run-1", services)
    proposed = events.Proposed(PLAIN.canonical(), PLAIN.digest())
    with pytest.raises(OSError, match="error"):
        driver.take(proposed)
    failure = await asyncio.wait_for(services.store.until_failed(), 5)
    assert isinstance(failure, OSError)
    assert failure.errno == errno.EIO
    driver.take(proposed)  # what the session has decided is not repeated as if it were saved
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert list(services.store.ledger.entries()) == []


async def test_after_a_kill_the_run_goes_on_with_the_same_key(services: SiteServices) -> None:
    driver = enrolled(services)
    deliver(driver, key_wanted())
    slots = services.store.key_slots("run-1")
    await driver.stop()
    row = services.store.run("run-1")
    assert row is not None
    again = RunDriver("run-1", services, row)
    again.restore(row)
    deliver(again, key_wanted())
    assert again.session.secure is not None
    assert again.session.secure.cohort == ("a", "b", "c")
    assert services.store.key_slots("run-1") == slots
    await again.stop()


async def test_the_local_step_is_saved_before_its_update_is_announced(services: SiteServices) -> None:
    driver = enrolled(services, PLAIN)
    deliver(driver, opened(spec=PLAIN))
    while services.store.step("run-1") is None:
        await services.engine.run(lambda: None)
    step = services.store.step("run-1")
    assert step is not None
    assert step.round == 0
    kinds = {entry.item.kind for entry in services.store.ledger.entries()}
    assert kinds <= {"plain update"}
    await driver.stop()


async def test_what_the_next_step_begins_from_is_saved_and_not_kept_in_memory(services: SiteServices) -> None:
    driver = enrolled(services, PLAIN)
    deliver(driver, opened(spec=PLAIN))
    while driver.session.step is None:
        await services.engine.run(lambda: None)
    assert driver.session.step.snapshot == {}
    saved = services.store.step("run-1")
    assert saved is not None
    assert saved.snapshot
    await driver.stop()
    row = services.store.run("run-1")
    assert row is not None
    again = RunDriver("run-1", services, row)
    again.restore(row)
    assert again.session.step is not None
    assert again.session.step.snapshot == {}
    await again.stop()


class HeldColumns:
    """Columns whose second read waits until the test lets it go, and which count the reads."""

    def __init__(self, matrix: NDArray[np.float64]) -> None:
        self.matrix, self.reads = matrix, 0
        self.reached, self.go_on = threading.Event(), threading.Event()

    @property
    def shape(self) -> tuple[int, int]:
        return (self.matrix.shape[0], self.matrix.shape[1])

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        self.reads += 1
        if self.reads == 2:
            self.reached.set()
            assert self.go_on.wait(30)
        return self.matrix[:, start:stop]


def ended() -> pb.Assignment:
    return pb.Assignment(run_id="run-1", key="k", run_finished=pb.RunFinished(status="aborted", reason="no more"))


def opened_to_a_cohort_too_small() -> pb.Assignment:
    told = opened(2, PLAIN)
    told.round_opened.cohort[:] = ["a", "b"]
    return told


@pytest.mark.parametrize(
    ("spec", "told"), [(PLAIN, ended()), (PLAIN, opened_to_a_cohort_too_small())], ids=["aborted", "withdrawn"]
)
async def test_a_local_step_stops_at_the_next_block_once_the_run_goes_on_no_longer(
    services: SiteServices, spec: RunSpec, told: pb.Assignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldColumns(np.random.default_rng(0).standard_normal((6, 40)))
    monkeypatch.setattr(LocalSite, "columns", lambda _site, _spec: held)
    monkeypatch.setattr("dcfpca.rpca.subspace.site.blocks", lambda columns, _: [(k, k + 1) for k in range(40)])
    driver = enrolled(services, spec)
    deliver(driver, opened(spec=spec))
    await services.engine.run(lambda: held.reached.wait(30))
    deliver(driver, told)
    held.go_on.set()
    await asyncio.wait([task for task in asyncio.all_tasks() if task.get_name() == "run-1 compute"], timeout=30)
    assert held.reads == 2
    assert services.store.step("run-1") is None
    await driver.stop()


async def test_a_withdrawal_is_sent_after_a_repeated_consent_that_is_on_its_way(
    services: SiteServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, refused = asyncio.Event(), asyncio.Event()
    sent: list[bool] = []

    async def respond(_egress: Egress, request: pb.RespondRequest) -> types.Receipt:
        await go_on.wait()
        sent.append(request.accept)
        if not request.accept:
            refused.set()
        return types.Receipt(fate=types.FATE_ACCEPTED)

    monkeypatch.setattr(Egress, "respond", respond)
    driver = enrolled(services, PLAIN)
    proposed = pb.RunProposed(spec=PLAIN.canonical(), spec_sha256=PLAIN.digest())
    deliver(driver, pb.Assignment(run_id="run-1", key="k", run_proposed=proposed))
    await asyncio.sleep(0)
    deliver(driver, opened_to_a_cohort_too_small())
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(30):
        await refused.wait()
    assert sent == [True, False]
    await driver.stop()
