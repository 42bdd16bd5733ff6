"""A private participant takes part, and nobody gets at its reconstruction, by any call there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dcfpca.identity import Role
from dcfpca.pki.credential_files import SiteFiles
from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.v1 import admin_pb2, rounds_pb2
from tests.support.services.federation import Federation

pytestmark = pytest.mark.slow
NAMES = ("alpha", "beta", "gamma", "hidden")
METHODS = [
    method
    for file, service in ((rounds_pb2, "RoundService"), (admin_pb2, "AdminService"))
    for method in file.DESCRIPTOR.services_by_name[service].methods
]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    problem = generate(Recipe(rows=20, columns=40, rank=2, sparsity=0.05, counts=(10, 10, 10, 10)), 4)
    with Federation(tmp_path_factory.mktemp("private")) as made:
        made.start_aggregator()
        for name, own in zip(NAMES, problem.sites(), strict=True):
            # It even allows exports: private is the last word.
            made.add_site(name, own.array, private=name == "hidden", allow_export=True)
        made.start_sites(NAMES)
        yield made


@pytest.fixture(scope="module")
def run_id(federation: Federation) -> str:
    """A finished run whose export has been asked for and answered."""
    view = federation.run(method="subspace", rank=2, rounds=4, export=True, participants=NAMES)
    for name in NAMES:
        federation.result(name, view.run_id)
    after = len(federation.processes["hidden"].lines)
    federation.operator.request_export(view.run_id)
    for name in NAMES[:3]:
        federation.processes[name].await_action("reconstruction_exported", run=view.run_id)
    federation.processes["hidden"].await_action("export_refused", run=view.run_id, after=max(0, after - 5))
    return view.run_id


def secrets_of(federation: Federation, run_id: str) -> list[bytes]:
    """What may not be seen anywhere: any three neighbouring numbers of the private site's data or reconstruction."""
    result = federation.result("hidden", run_id)
    arrays = [federation.data["hidden"], result.L, result.V, np.asarray(result.S.data)]
    flat = [order for array in arrays for order in (array.ravel("C"), array.ravel("F"))]
    return [
        values[at : at + 3].tobytes()
        for values in flat
        for at in range(0, len(values) - 2, 3)
        if any(values[at : at + 3])
    ]


def test_public_participants_export_and_the_private_one_refuses_by_name(federation: Federation, run_id: str) -> None:
    view = federation.operator.export(run_id)
    assert {(file.participant, file.artifact) for file in view.files} == {
        (name, artifact) for name in NAMES[:3] for artifact in ("L.npy", "S.npz")
    }
    (refusal,) = view.refusals
    assert refusal.participant == "hidden"
    assert refusal.reasons == ["this participant is private: its reconstruction never leaves the site"]
    assert not view.awaited


def test_an_exported_file_is_the_one_the_site_wrote(federation: Federation, run_id: str) -> None:
    for file in federation.operator.export(run_id).files:
        body = b"".join(chunk.data for chunk in federation.operator.reconstruction(run_id, file, 0))
        written = federation.root / "sites" / file.participant / "results" / run_id / file.artifact
        assert body == written.read_bytes()


def filled(kind: type[Message], run_id: str, name: str) -> Message:
    """A message whose every field that names something names the private participant and its run."""
    known: dict[str, Any] = {
        "run_id": run_id,
        "participant": name,
        "name": name,
        "artifact": "L.npy",
        "export_id": "e",
        "request_id": "a-long-request-id",
        "protocol": 1,
        "round": 4,
        "attempt": 1,
        "final": True,
        "limit": 100,
    }
    message = kind()
    for field in message.DESCRIPTOR.fields:
        if field.name in known:
            setattr(message, field.name, known[field.name])
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not field.is_repeated:
            getattr(message, field.name).CopyFrom(filled(type(getattr(message, field.name)), run_id, name))
    return message


def answers(channel: grpc.Channel, method: MethodDescriptor, request: Message) -> Iterator[bytes]:
    """The raw bytes that come back; a refusal ends them."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    body: Any = iter([request.SerializeToString()]) if method.client_streaming else request.SerializeToString()
    kind = ("stream" if method.client_streaming else "unary") + "_" + ("stream" if method.server_streaming else "unary")
    try:
        got = getattr(channel, kind)(path)(body, timeout=3)
        yield from got if method.server_streaming else [got]
    except grpc.RpcError as error:
        yield str(error.details()).encode()


def channel_of(federation: Federation, files: SiteFiles) -> grpc.Channel:
    tls = grpc.ssl_channel_credentials(files.ca.read_bytes(), files.key.read_bytes(), files.certificate.read_bytes())
    return grpc.secure_channel(federation.address, tls, options=[("grpc.use_local_subchannel_pool", 1)])


def test_nothing_of_the_private_reconstruction_lies_at_the_aggregator(federation: Federation, run_id: str) -> None:
    hidden = secrets_of(federation, run_id)
    kept = [path for path in federation.root.glob("store.db*/**/*") if path.is_file()]
    kept += [path for path in federation.root.glob("store.db*") if path.is_file()]
    assert any("alpha" in str(path) for path in kept)
    assert not any("hidden" in str(path) for path in kept)
    for path in kept:
        body = path.read_bytes()
        assert not any(secret in body for secret in hidden), path


def test_no_call_of_anybody_gives_the_private_reconstruction(federation: Federation, run_id: str) -> None:
    hidden = secrets_of(federation, run_id)
    assert len(hidden) > 100
    everything = bytearray()
    curious = federation.identity(Role.PARTICIPANT, "curious")
    for files in (federation.files["op"], curious):
        with channel_of(federation, files) as channel:
            # Revoking comes last: it is the one call that takes the private participant away.
            for method in sorted(METHODS, key=lambda method: method.name == "RevokeParticipant"):
                request = filled(GetMessageClass(method.input_type), run_id, "hidden")
                for answer in answers(channel, method, request):
                    everything += answer
    assert len(everything) > 1000, "the calls were answered"
    assert not any(secret in everything for secret in hidden)


def test_the_sites_ledger_shows_that_no_reconstruction_left(federation: Federation, run_id: str) -> None:
    alpha, hidden = (federation.site_command(name, "ledger", "--verify", "--json") for name in ("alpha", "hidden"))
    assert (alpha.returncode, hidden.returncode) == (0, 0)
    assert '"reconstruction"' in alpha.stdout
    assert '"reconstruction"' not in hidden.stdout
    assert '"export refusal"' in hidden.stdout


def test_an_operator_gets_no_export_that_the_spec_did_not_announce(federation: Federation, tmp_path: Path) -> None:
    # Without the private one, which has been revoked by now: the run would wait for its answer.
    view = federation.run(method="subspace", rank=1, rounds=1, participants=NAMES[:3], aggregation="plain")
    with pytest.raises(grpc.RpcError) as caught:
        federation.operator.request_export(view.run_id)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
