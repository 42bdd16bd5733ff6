"""A run with a fixed cohort through restarts of the aggregator: nothing accepted is lost, nothing is asked twice."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from aggregator.run import events
from aggregator.run.rules import awaited
from aggregator.run.secure_sum import full_roster, terms_of
from aggregator.run.state import Run, Status, opening_of
from aggregator.runner import Runner
from aggregator.store import run_rows
from aggregator.store.audit import Signer
from aggregator.store.postgresql import PostgresDatabase, prepare
from aggregator.store.store import Store
from aggregator.store.thread import StoreThread
from aggregator.store.update_files import UpdateKey
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus, FloatArray, TensorMessage, Total
from dcfpca.secagg.aggregator import shares_for
from dcfpca.secagg.messages import Masked, Opening
from dcfpca.secagg.site import SecureSite
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.wire.receipt import Fate
from tests.support.runs.rules import NAMES, spec_of
from tests.support.runs.secagg import identity_of
from tests.support.runs.stored_runs import load_runs
from tests.support.services.postgresql import Server, needs_postgresql
from tests.support.services.stores import OpenStore, take_over

SPEC = spec_of(method="gradient", aggregation="secure", rounds=6)


@asynccontextmanager
async def running(path: Path, open_store: OpenStore) -> AsyncIterator[tuple[Runner, Store]]:
    """The run of this store, made or taken up again."""
    store = open_store(path)
    thread = StoreThread(store, Signer(lambda data: data, b""), "test")
    fresh = not load_runs(store)
    if fresh:
        begun = method_of(SPEC).begin()
        store.create_run(Run(run_id="r1", created_at=thread.now()), SPEC.canonical(), "request-1", begun)
    (stored,) = load_runs(store)
    made = Runner(stored, thread, lambda _: None)
    await (made.start() if fresh else made.restart())
    try:
        yield made, store
    finally:
        await made.stop()
        thread.close()


class Members:
    """The sides of all members, which survive restarts of the aggregator as their records do."""

    def __init__(self) -> None:
        self.sides: dict[str, SecureSite] = {}
        draw, method = np.random.default_rng(3), method_of(SPEC)
        self._sites = {name: method.site(ArrayColumns(draw.standard_normal((8, 5)))) for name in NAMES}
        self._updates: dict[tuple[str, int], FloatArray] = {}

    async def set_up(self, made: Runner) -> None:
        for name in NAMES:
            await made.post(events.Responded(at=made._store.now(), participant=name, accept=True))
        terms = terms_of(SPEC, made.run)
        for name in NAMES:
            side = SecureSite.begin(terms, identity_of(name), name.encode().ljust(64, b"."))
            self.sides[name] = side
            await made.post(events.RunKeyAdvertised(at=made._store.now(), participant=name, run_key=side.advert()))

    async def share(self, made: Runner) -> None:
        fixed = made.run.secure
        assert fixed is not None
        for name, side in self.sides.items():
            shares = tuple(sorted(side.share(full_roster(fixed)), key=lambda share: share.receiver))
            await made.post(events.GroupSecretShared(at=made._store.now(), participant=name, shares=shares))

    def complete(self, made: Runner) -> None:
        fixed = made.run.secure
        assert fixed is not None
        sealed = [share for shares in fixed.shares.values() for share in shares]
        for name, side in self.sides.items():
            side.complete(full_roster(fixed), shares_for(name, sealed))

    def masked(self, made: Runner, name: str) -> Masked:
        said = self.sides[name].answer(self.opening(made), self.update(made.round_sum.consensus, name))
        assert isinstance(said, Masked)
        return said

    def update(self, consensus: Consensus, name: str) -> FloatArray:
        """The numbers of the member in this round, computed once."""
        key, site = (name, consensus.round), self._sites[name]
        if key not in self._updates:
            self._updates[key] = site.answer(consensus).flat()
        return self._updates[key]

    def total(self, consensus: Consensus) -> FloatArray:
        """The sum in the open."""
        sums: FloatArray = np.sum([self.update(consensus, name) for name in NAMES], axis=0)
        return sums

    def opening(self, made: Runner) -> Opening:
        return opening_of(made.terms, made.run, made.round_sum.encoded().digest)

    async def send(self, made: Runner, *names: str) -> list[Fate]:
        """The updates of these members; the last of all waits for the sum."""
        fates = []
        for name in names:
            here, said = made.run.attempt, self.masked(made, name)
            assert here is not None
            body = said.values.tobytes()
            sha256 = hashlib.sha256(body).digest()
            event = events.UpdateReceived(
                at=made._store.now(), participant=name, ref=here.ref, sha256=sha256, size=len(body), tag=said.tag
            )
            reply = await made.post(event, (UpdateKey(here.ref, name, sha256), 0, body))
            assert reply is not None
            fates.append(reply.fate)
        return fates


async def until_round(made: Runner, round: int) -> None:
    while made.run.attempt is None or made.run.attempt.ref.round < round:
        assert made.run.status.value == "running", made.run.reason
        await made.changed.wait(made.changed.version)


async def through_round(members: Members, made: Runner) -> None:
    here = made.run.attempt
    assert here is not None
    await members.send(made, *NAMES)
    await until_round(made, here.ref.round + 1)


async def test_a_restart_in_every_phase_goes_on_where_the_run_was(open_store: OpenStore, tmp_path: Path) -> None:
    members, path = Members(), tmp_path / "store.db"
    async with running(path, open_store) as (made, _):
        await members.set_up(made)
    async with running(path, open_store) as (made, _):
        assert made.run.phase == "sharing"
        await members.share(made)
    async with running(path, open_store) as (made, _):
        assert made.run.phase == "uploading"
        members.complete(made)
        assert await members.send(made, "ann", "bob") == [Fate.ACCEPTED] * 2
    async with running(path, open_store) as (made, _):
        assert awaited(made.rules, made.run) == ("cem", "dag")
        assert await members.send(made, "ann") == [Fate.DUPLICATE]
        before = made.round_sum.consensus
        assert await members.send(made, "cem", "dag") == [Fate.ACCEPTED] * 2
        await until_round(made, 1)
        message = TensorMessage.unflatten(made.terms.method.stages[0].up, members.total(before))
        wanted = made.terms.method.advance(before, Total(message, len(NAMES)))
        assert np.allclose(made.round_sum.consensus.broadcast.flat(), wanted.broadcast.flat(), rtol=1e-6)
    async with running(path, open_store) as (made, _):
        assert made.run.attempt is not None
        assert made.run.attempt.ref.attempt == 1
        await through_round(members, made)


async def test_a_lost_update_is_asked_for_again_and_comes_as_the_same_bytes(
    open_store: OpenStore, tmp_path: Path
) -> None:
    members, path = Members(), tmp_path / "store.db"
    async with running(path, open_store) as (made, _):
        await members.set_up(made)
        await members.share(made)
        members.complete(made)
        await members.send(made, "ann", "bob", "cem")
        first = members.masked(made, "bob").values.tobytes()
        assert made.run.attempt is not None
        ref, sha256 = made.run.attempt.ref, made.run.attempt.updates["bob"]
    async with running(path, open_store) as (_, store):
        store.updates.forget(UpdateKey(ref, "bob", sha256))
    async with running(path, open_store) as (made, _):
        assert made.run.attempt is not None
        assert made.run.attempt.ref == ref
        assert awaited(made.rules, made.run) == ("bob", "dag")
        assert members.masked(made, "bob").values.tobytes() == first
        opening, before = members.opening(made), made.round_sum.consensus
        assert await members.send(made, "bob", "dag") == [Fate.ACCEPTED] * 2
        await until_round(made, 1)
        kept = run_rows.kept_opened_sum(made._store.store.connection, "r1", 0)
        assert kept is not None
        header = pb.SumHeader.FromString(kept.header)
        total = members.sides["ann"].verify_sum(opening, np.frombuffer(kept.values, "<u8"), header.tag)
        # Round 0 keeps scalars to 2^-12 and better.
        assert np.allclose(total, members.total(before), rtol=0, atol=len(NAMES) * 2.0**-12)


@pytest.mark.slow
@needs_postgresql
async def test_a_successor_on_another_machine_is_sent_again_what_was_not_summed(
    postgresql: Server, tmp_path: Path
) -> None:
    url, members = postgresql.new_database(), Members()
    prepare(url)

    def on(machine: Path) -> Store:
        return Store(machine, PostgresDatabase(url, take_over(url)))

    async with running(tmp_path / "one", on) as (made, _):
        await members.set_up(made)
        await members.share(made)
        members.complete(made)
        await members.send(made, "ann", "bob", "cem")
        first = members.masked(made, "bob").values.tobytes()
    async with running(tmp_path / "two", on) as (made, _):
        assert awaited(made.rules, made.run) == NAMES
        assert members.masked(made, "bob").values.tobytes() == first
        await through_round(members, made)
    async with running(tmp_path / "one", on) as (made, _):
        assert made.run.attempt is not None
        assert (made.run.attempt.ref.round, made.run.attempt.ref.attempt) == (1, 1)
        await through_round(members, made)


async def test_the_sums_of_the_last_two_rounds_are_kept(open_store: OpenStore, tmp_path: Path) -> None:
    members = Members()
    async with running(tmp_path / "store.db", open_store) as (made, store):
        await members.set_up(made)
        await members.share(made)
        members.complete(made)
        for _ in range(4):
            await through_round(members, made)
        kept = [round for round in range(6) if run_rows.kept_opened_sum(store.connection, "r1", round)]
        assert kept == [2, 3]
        fixed = made.run.secure
        assert fixed is not None
        assert not fixed.adverts


async def test_after_a_restart_a_run_pauses_though_its_patience_ended_before_its_members_were_late(
    tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the next deadline is the moment of the one that has passed, for which a timer has gone off already."""
    hasty = spec_of(method="gradient", aggregation="secure", rounds=6, round_seconds=0.3, patience=0.1)
    monkeypatch.setattr(sys.modules[__name__], "SPEC", hasty)
    async with running(tmp_path / "store.db", open_store) as (made, _):
        for name in NAMES:
            await made.post(events.Responded(at=made._store.now(), participant=name, accept=True))
    async with running(tmp_path / "store.db", open_store) as (made, _), asyncio.timeout(10):
        while made.run.status is not Status.PAUSED:
            await made.changed.wait(made.changed.version)
        assert "longer than the spec's patience" in made.run.reason
