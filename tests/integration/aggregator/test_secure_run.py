"""A secure run with a fixed cohort against the real service: sums, waiting, finishing, complaints, old peers."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from aggregator.run import events
from aggregator.run.rules import assignments, step
from aggregator.run.state import Run
from aggregator.runner import Runner
from dcfpca.method_memory import decode_memory
from dcfpca.rpca.method import Consensus, FloatArray, TensorMessage, Total
from dcfpca.secagg.errors import WrongSum
from dcfpca.secagg.fixed_point import block_layout
from dcfpca.secagg.messages import complain
from dcfpca.spec import RunSpec
from dcfpca.v1 import admin_pb2 as admin
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.constants import PROTOCOL
from dcfpca.wire.round_messages import consent_bytes
from dcfpca.wire.tensors import header_of, message_from
from participant.session.secure_run import announced_opening
from participant.wire_codec import announcement_of
from tests.support.services.secure_site import WaitingSite
from tests.support.services.service import Service, service

NAMES = ("ann", "bob", "cem", "dag")
ROWS = 6


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Service]:
    async with service(tmp_path) as made:
        yield made


def data_of(name: str) -> FloatArray:
    rng = np.random.default_rng(NAMES.index(name))
    return np.outer(np.arange(1.0, ROWS + 1), rng.standard_normal(5)) + 0.01 * rng.standard_normal((ROWS, 5))


async def propose(live: Service, **keys: Any) -> str:
    spec: dict[str, Any] = {
        "rows": ROWS,
        "rank": 1,
        "rounds": 4,
        "tolerance": 0,
        "participants": NAMES,
        "round_seconds": 30,
    }
    spec |= {"closing_rounds": False} | keys
    request = admin.ProposeRunRequest(spec=json.dumps(spec).encode(), request_id=f"request-{len(keys)}-{keys}"[:90])
    return str((await live.operator().ProposeRun(request)).run_id)


async def until(live: Service, run_id: str, holds: Callable[[admin.RunView], bool]) -> admin.RunView:
    async with asyncio.timeout(30):
        async for view in live.operator().WatchRun(admin.WatchRunRequest(run_id=run_id, after_round=-1)):
            if holds(view):
                return view
    raise AssertionError("the run ended first")


async def test_a_round_is_one_message_and_every_member_can_check_sum_and_arithmetic(live: Service) -> None:
    sites = [WaitingSite(live, name, data_of(name)) for name in NAMES]
    run_id = await propose(live)
    await asyncio.gather(*(site.listen() for site in sites))
    view = await live.operator().GetRun(admin.GetRunRequest(run_id=run_id))
    assert view.status == "finished"
    assert [tuple(one.survivors) for one in view.rounds] == [NAMES] * 5
    assert all(site.fates == [types.FATE_ACCEPTED] * 5 for site in sites)
    ann = sites[0]
    assert ann.side is not None
    header, values = await ann.fetch_sum(run_id, 3)
    layout = ann.method.stage("fit").up
    began = ann.openings[3][0]
    opening = announced_opening(
        announcement_of(header.opened), block_layout(layout), hashlib.sha256(began.inline_consensus)
    )
    assert opening == ann.openings[3][1]
    assert hashlib.sha256(header.memory).digest() == began.memory_sha256
    numbers = ann.side.verify_sum(opening, np.frombuffer(values, "<u8"), header.tag)
    broadcast = message_from(ann.method.stage("fit").down, began.inline_consensus)
    before = Consensus(3, "fit", broadcast, decode_memory(header.memory))
    total = Total(TensorMessage.unflatten(layout, numbers), header.contributors)
    after = ann.method.advance(before, total).broadcast.flat()
    told = np.frombuffer(ann.openings[4][0].inline_consensus)
    assert np.allclose(after, told, rtol=1e-12, atol=1e-12)
    with pytest.raises(WrongSum):
        ann.side.verify_sum(opening, np.frombuffer(values, "<u8") + np.uint64(1), header.tag)
    with pytest.raises(grpc.aio.AioRpcError) as gone:
        await ann.fetch_sum(run_id, 0)
    assert gone.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_member_that_is_away_is_waited_for_and_the_run_pauses_after_its_patience(live: Service) -> None:
    sites = {name: WaitingSite(live, name, data_of(name)) for name in NAMES}
    run_id = await propose(live, round_seconds=1, patience=1)
    others = [asyncio.create_task(sites[name].listen()) for name in NAMES[:3]]
    await sites["dag"].listen(stop_before=2)
    waiting = await until(live, run_id, lambda view: bool(view.waiting))
    assert [(one.participant, one.connected) for one in waiting.waiting] == [("dag", False)]
    assert waiting.round == 2
    paused = await until(live, run_id, lambda view: view.status == "paused")
    assert "dag" in paused.reason
    coming = asyncio.create_task(sites["dag"].listen())
    await live.operator().ResumeRun(admin.ResumeRunRequest(run_id=run_id))
    await asyncio.gather(coming, *others)
    view = await live.operator().GetRun(admin.GetRunRequest(run_id=run_id))
    assert view.status == "finished"
    assert [(one.attempt, len(one.survivors)) for one in view.rounds] == [(1, 4)] * 5


async def test_an_operator_finishes_a_run_and_its_members_get_the_consensus(live: Service) -> None:
    sites = {name: WaitingSite(live, name, data_of(name)) for name in NAMES}
    run_id = await propose(live)
    others = [asyncio.create_task(sites[name].listen()) for name in NAMES[:3]]
    await sites["dag"].listen(stop_before=2)
    await until(live, run_id, lambda view: view.round == 2 and list(view.awaited) == ["dag"])
    view = await live.operator().FinishRun(admin.FinishRunRequest(run_id=run_id, reason="dag left"))
    assert view.status == "finished"
    assert view.reason == "finished by the operator op before round 2: dag left"
    await asyncio.gather(*others)
    over = sites["ann"].finished
    assert over is not None
    request = pb.FetchConsensusRequest(run_id=run_id, round=over.round, final=True)
    parts = [part async for part in sites["ann"].stub.FetchConsensus(request)]
    assert b"".join(part.chunk.data for part in parts[1:]) == sites["ann"].openings[2][0].inline_consensus
    model = [part async for part in live.operator().FetchModel(admin.FetchModelRequest(run_id=run_id))]
    assert model[0].header.rows == ROWS
    entries = [one async for one in live.operator().FetchAuditLog(admin.FetchAuditLogRequest(run_id=run_id))]
    assert "run_finished_by_operator" in [one.action for one in entries]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await live.operator().FinishRun(admin.FinishRunRequest(run_id=run_id))
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_misfit_lifts_the_exponents_and_the_round_is_summed(live: Service) -> None:
    sites = [WaitingSite(live, name, data_of(name)) for name in NAMES]
    sites[1].lift = lambda round: 2.0**22 if round == 1 else 1.0  # type: ignore[method-assign]
    run_id = await propose(live, rounds=2)
    await asyncio.gather(*(site.listen() for site in sites))
    view = await live.operator().GetRun(admin.GetRunRequest(run_id=run_id))
    assert view.status == "finished"
    assert [one.attempt for one in view.rounds] == [1, 2, 1]
    assert [misfit.participant for misfit in sites[0].openings[1][0].misfits] == ["bob"]


async def test_a_signed_complaint_is_shown_and_a_forged_one_is_refused(live: Service) -> None:
    sites = {name: WaitingSite(live, name, data_of(name)) for name in NAMES}
    run_id = await propose(live)
    others = [asyncio.create_task(sites[name].listen()) for name in NAMES[:3]]
    dag = sites["dag"]
    await dag.listen(stop_before=2)
    assert dag.side is not None
    made = complain(dag.side.terms, dag.identity, WrongSum("the sum of round 1 is not what we sent"))
    fields: dict[str, Any] = {"error": made.error, "sentence": made.sentence, "certificate": made.certificate}
    request = pb.ComplainRequest(run_id=run_id, signature=made.signature, **fields)
    assert (await dag.stub.Complain(request)).fate == types.FATE_ACCEPTED
    assert (await dag.stub.Complain(request)).fate == types.FATE_DUPLICATE
    assert (await sites["ann"].stub.Complain(request)).fate == types.FATE_REJECTED
    changed = pb.ComplainRequest(run_id=run_id, signature=made.signature, **fields | {"sentence": "all is well"})
    assert (await dag.stub.Complain(changed)).fate == types.FATE_REJECTED
    view = await live.operator().GetRun(admin.GetRunRequest(run_id=run_id))
    assert [(one.participant, one.error) for one in view.complaints] == [("dag", "WrongSum")]
    await live.operator().AbortRun(admin.AbortRunRequest(run_id=run_id))
    await asyncio.gather(*others)


async def test_a_revoked_member_pauses_the_run(live: Service) -> None:
    sites = {name: WaitingSite(live, name, data_of(name)) for name in NAMES}
    run_id = await propose(live)
    others = [asyncio.create_task(sites[name].listen()) for name in NAMES[:3]]
    await sites["dag"].listen(stop_before=2)
    await live.operator().RevokeParticipant(admin.RevokeParticipantRequest(name="dag", reason="stolen laptop"))
    view = await until(live, run_id, lambda view: view.status == "paused")
    assert view.reason.startswith("dag was revoked")
    await live.operator().AbortRun(admin.AbortRunRequest(run_id=run_id))
    await asyncio.gather(*others)


async def test_an_update_that_is_masked_for_another_context_is_refused(live: Service) -> None:
    sites = {name: WaitingSite(live, name, data_of(name)) for name in NAMES}
    run_id = await propose(live)
    others = [asyncio.create_task(sites[name].listen()) for name in NAMES[:3]]
    await sites["dag"].listen(stop_before=1)
    opened = (await until(live, run_id, lambda view: view.round == 1)).attempt
    payload = bytes(8 * sites["dag"].method.stage("fit").up.size)
    tensor = header_of(payload, sites["dag"].method.stage("fit").up, types.DTYPE_UINT64)
    ref = types.RoundRef(run_id=run_id, round=1, attempt=opened)
    header = pb.UpdateHeader(ref=ref, tensor=tensor, tag=1, context=bytes(32))
    with pytest.raises(grpc.aio.AioRpcError, match="masked for another"):
        await sites["dag"].stub.SubmitWhole(pb.WholeUpdate(header=header, data=payload))
    await live.operator().AbortRun(admin.AbortRunRequest(run_id=run_id))
    await asyncio.gather(*others)


async def test_what_came_before_its_phase_is_not_taken_unchecked_when_the_phase_has_come(
    live: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = {name: WaitingSite(live, name, data_of(name)) for name in NAMES}
    run_id = await propose(live)
    others = [asyncio.create_task(sites[name].listen()) for name in NAMES[:3]]
    post = Runner.post

    async def late(self: Runner, event: Any, chunk: Any = None) -> Any:
        """The events of this kind are stepped when the phase that awaits them has come, as in a busy queue."""
        while isinstance(event, events.GroupSecretShared) and self.run.phase == "advertising":
            await self.changed.wait(self.changed.version)
        return await post(self, event, chunk)

    monkeypatch.setattr(Runner, "post", late)
    await sites["dag"].listen(stop_at="run_key_wanted")
    sealed: dict[str, Any] = {"sender": "dag", "ciphertext": bytes(48), "signature": bytes(70)}
    false = [pb.SealedGroupShare(recipient=name, **sealed) for name in NAMES[:3]]
    sent = asyncio.create_task(_shared(sites["dag"], run_id, false))
    await asyncio.gather(sites["dag"].listen(), *others)
    assert (await sent).fate == types.FATE_REJECTED
    assert (await live.operator().GetRun(admin.GetRunRequest(run_id=run_id))).status == "finished"


async def _shared(site: WaitingSite, run_id: str, shares: list[pb.SealedGroupShare]) -> types.Receipt:
    receipt: types.Receipt = await site.stub.ShareGroupSecret(pb.ShareGroupSecretRequest(run_id=run_id, shares=shares))
    return receipt


async def test_a_participant_of_version_0_1_is_turned_away_with_what_to_upgrade(live: Service) -> None:
    stream = live.participant("old").Subscribe(pb.SubscribeRequest(protocol=PROTOCOL - 1, software="0.1"))
    with pytest.raises(grpc.aio.AioRpcError, match="upgrade the participant"):
        await stream.read()


async def test_an_aggregator_of_version_0_1_tells_a_site_that_it_must_be_upgraded(
    live: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.rpc.rounds.PROTOCOL", PROTOCOL - 1)  # as version 0.1 compares them
    stream = live.participant("new").Subscribe(pb.SubscribeRequest(protocol=PROTOCOL, software="0.2"))
    with pytest.raises(grpc.aio.AioRpcError, match="upgrade the aggregator"):
        await stream.read()


async def test_an_error_in_one_runs_step_or_assignment_leaves_other_runs_alone(
    live: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = [WaitingSite(live, name, data_of(name)) for name in NAMES]
    broken = await propose(live, participants=("eve", "fay", "guy", *NAMES))
    asked = []

    def raising(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(spec: RunSpec, run: Run, *more: Any) -> Any:
            if run.run_id == broken:
                asked.append(real.__name__)
                raise RuntimeError("injected")
            return real(spec, run, *more)

        return call

    monkeypatch.setattr("aggregator.runner.step", raising(step))
    monkeypatch.setattr("aggregator.rpc.rounds.assignments", raising(assignments))
    run_id = await propose(live)
    await asyncio.gather(*(site.listen() for site in sites))
    assert (await live.operator().GetRun(admin.GetRunRequest(run_id=run_id))).status == "finished"
    digest = live.run_registry.runners[broken].run.spec_sha256
    said = consent_bytes(broken, digest, "ann", accept=True, private=False, reasons=[])
    answer = pb.RespondRequest(run_id=broken, spec_sha256=digest, accept=True, signature=sites[0].identity.sign(said))
    refused = await sites[0].stub.Respond(answer)
    assert refused.fate == types.FATE_REJECTED
    assert "injected" in refused.reason
    assert set(asked) == {"step", "assignments"}
    await live.operator().AbortRun(admin.AbortRunRequest(run_id=run_id))
