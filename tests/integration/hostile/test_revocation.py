"""Who was turned away stays away, with whatever certificate, until an operator says otherwise."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from aggregator.store import participants
from aggregator.store.store import Store
from dcfpca.identity import Role, fingerprint
from dcfpca.pki.credential_files import Credentials
from dcfpca.pki.revocation import key_mark, serial_mark
from dcfpca.v1 import admin_pb2, rounds_pb2
from dcfpca.v1.rounds_pb2_grpc import RoundServiceStub
from dcfpca.wire.constants import PROTOCOL
from tests.support.hostile.certificates import twisted_pem
from tests.support.services.service import Service, service

HELLO = rounds_pb2.SubscribeRequest(protocol=PROTOCOL, software="test", rows=4)


@pytest.fixture
async def aggregator(tmp_path: Path) -> AsyncIterator[Service]:
    async with service(tmp_path) as made:
        yield made


async def status(aggregator: Service, own: Credentials) -> grpc.StatusCode:
    """What a harmless call gets under these credentials; NOT_FOUND (no such run) means let in."""
    try:
        await RoundServiceStub(aggregator.channel_of(own)).Respond(rounds_pb2.RespondRequest(run_id="x"), timeout=10)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def introduced(aggregator: Service, name: str) -> Credentials:
    own = aggregator.credentials(Role.PARTICIPANT, name)
    call = RoundServiceStub(aggregator.channel_of(own)).Subscribe(HELLO)
    await call.wait_for_connection()
    while not aggregator.run_registry.directory.is_connected(name):
        await aggregator.run_registry.stage.wait(aggregator.run_registry.stage.version)
    call.cancel()
    return own


def twin(own: Credentials) -> Credentials:
    return replace(own, cert_pem=twisted_pem(own.cert_pem))


async def test_a_twisted_signature_does_not_bring_a_revoked_participant_back(aggregator: Service) -> None:
    own = await introduced(aggregator, "ann")
    assert await status(aggregator, twin(own)) is grpc.StatusCode.NOT_FOUND
    await aggregator.operator().RevokeParticipant(admin_pb2.RevokeParticipantRequest(name="ann"))
    assert await status(aggregator, own) is grpc.StatusCode.UNAUTHENTICATED
    assert await status(aggregator, twin(own)) is grpc.StatusCode.UNAUTHENTICATED


async def test_revoking_one_certificate_is_by_serial_and_key_and_leaves_the_name(aggregator: Service) -> None:
    own = await introduced(aggregator, "ann")
    shown = fingerprint(own.certificate)
    await aggregator.operator().RevokeParticipant(admin_pb2.RevokeParticipantRequest(fingerprint=shown))
    assert await status(aggregator, twin(own)) is grpc.StatusCode.UNAUTHENTICATED
    assert await status(aggregator, aggregator.credentials(Role.PARTICIPANT, "ann")) is grpc.StatusCode.NOT_FOUND
    serial = serial_mark(own.certificate.issuer, own.certificate.serial_number)
    assert {shown, serial, key_mark(own.certificate)} <= aggregator.trust.revoked


async def test_revoking_a_name_covers_its_other_certificates_and_nobody_else(aggregator: Service) -> None:
    await introduced(aggregator, "ann")
    await aggregator.operator().RevokeParticipant(admin_pb2.RevokeParticipantRequest(name="ann"))
    assert await status(aggregator, aggregator.credentials(Role.PARTICIPANT, "ann")) is grpc.StatusCode.UNAUTHENTICATED
    assert await status(aggregator, aggregator.credentials(Role.PARTICIPANT, "bob")) is grpc.StatusCode.NOT_FOUND
    # An operator of the same name is somebody else.
    assert await status(aggregator, aggregator.credentials(Role.OPERATOR, "ann")) is grpc.StatusCode.PERMISSION_DENIED
    [listed] = (await aggregator.operator().ListParticipants(admin_pb2.ListParticipantsRequest())).participants
    assert (listed.name, listed.state) == ("ann", "revoked")


async def test_a_restored_participant_is_let_in_again_and_both_are_in_the_audit_log(aggregator: Service) -> None:
    own, operator = await introduced(aggregator, "ann"), aggregator.operator()
    await operator.RevokeParticipant(admin_pb2.RevokeParticipantRequest(name="ann", reason="left"))
    await operator.RestoreParticipant(admin_pb2.RestoreParticipantRequest(name="ann", reason="came back"))
    assert await status(aggregator, own) is grpc.StatusCode.NOT_FOUND
    store = aggregator.run_registry.store.store
    assert participants.revoked(store.connection) == frozenset()
    entries = [entry async for entry in operator.FetchAuditLog(admin_pb2.FetchAuditLogRequest())]
    told = [(e.action, json.loads(e.detail)["reason"], e.actor) for e in entries if e.action.startswith("participant_")]
    assert told == [
        ("participant_revoked", "left", "spiffe://acme/operator/op"),
        ("participant_restored", "came back", "spiffe://acme/operator/op"),
    ]


@pytest.mark.parametrize("name", ["", "ann", "nobody"])
async def test_whoever_was_not_turned_away_cannot_be_restored(aggregator: Service, name: str) -> None:
    await introduced(aggregator, "ann")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await aggregator.operator().RestoreParticipant(admin_pb2.RestoreParticipantRequest(name=name))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_revocations_survive_a_restart_and_those_by_fingerprint_of_older_stores_hold(
    aggregator: Service, tmp_path: Path
) -> None:
    old, new = aggregator.credentials(Role.PARTICIPANT, "old"), aggregator.credentials(Role.PARTICIPANT, "new")
    store = Store(tmp_path / "other.db")
    row = (fingerprint(old.certificate), "old", "", datetime.now(UTC).timestamp())
    store.connection.execute("INSERT INTO revoked VALUES (?, ?, ?, ?)", row)
    participants.revoke(store.connection, {key_mark(new.certificate)}, "new", "", 0.0)
    aggregator.trust._revoked_here = participants.revoked(store.connection)
    store.close()
    for own in (old, new):
        assert await status(aggregator, own) is grpc.StatusCode.UNAUTHENTICATED
        assert await status(aggregator, twin(own)) is grpc.StatusCode.UNAUTHENTICATED
