"""The calls of AdminService, typed and with deadlines; and their gRPC status codes as errors with a hint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import grpc

from dcfpca.errors import BadIdentity, BadInput, DcfpcaError, Refused, Unreachable
from dcfpca.identity import Identity, Role
from dcfpca.v1 import admin_pb2 as pb
from dcfpca.v1 import types_pb2
from dcfpca.v1.admin_pb2_grpc import AdminServiceStub
from dcfpca.wire.addresses import Address, TlsFiles, diagnose
from dcfpca.wire.audit_chain import all_shown

SECONDS = 15.0
"""The deadline of a call that is not a stream."""

Answer = TypeVar("Answer")


class Operator:
    """A connected operator. Calls raise grpc.RpcError, which `connected` turns into a DcfpcaError."""

    def __init__(self, channel: Any, address: Address, identity: Identity) -> None:
        self._stub = AdminServiceStub(channel)
        self._identity = identity
        self.address = address

    def propose(self, spec: bytes, request_id: str) -> pb.RunView:
        """Propose a run; a repeat with the same request_id returns the same run."""
        return self._ask("ProposeRun", pb.RunView, pb.ProposeRunRequest(spec=spec, request_id=request_id))

    def runs(self, limit: int = 0) -> Sequence[pb.RunView]:
        """All runs, newest first."""
        return self._ask("ListRuns", pb.ListRunsResponse, pb.ListRunsRequest(limit=limit)).runs

    def run(self, run_id: str) -> pb.RunView:
        """One run with all its rounds."""
        return self._ask("GetRun", pb.RunView, pb.GetRunRequest(run_id=run_id))

    def watch(self, run_id: str, after_round: int) -> Iterator[pb.RunView]:
        """The run now and whenever it changes."""
        return self._stream("WatchRun", pb.RunView, pb.WatchRunRequest(run_id=run_id, after_round=after_round))

    def abort(self, run_id: str, reason: str) -> pb.RunView:
        """End a run."""
        return self._ask("AbortRun", pb.RunView, pb.AbortRunRequest(run_id=run_id, reason=reason))

    def resume(self, run_id: str) -> pb.RunView:
        """Resume a paused run."""
        return self._ask("ResumeRun", pb.RunView, pb.ResumeRunRequest(run_id=run_id))

    def finish(self, run_id: str, reason: str) -> pb.RunView:
        """End a run with the consensus it has."""
        return self._ask("FinishRun", pb.RunView, pb.FinishRunRequest(run_id=run_id, reason=reason))

    def delete(self, run_id: str, reason: str) -> None:
        """Delete a run that is over."""
        self._ask("DeleteRun", pb.DeleteRunResponse, pb.DeleteRunRequest(run_id=run_id, reason=reason))

    def participants(self) -> Sequence[pb.ParticipantView]:
        """Everyone who ever connected."""
        return self._ask("ListParticipants", pb.ListParticipantsResponse, pb.ListParticipantsRequest()).participants

    def are_connected(self, names: Iterable[str]) -> bool:
        """True if each of these participants has its stream open."""
        return {one.name for one in self.participants() if one.state == "connected"} >= set(names)

    def revoke(self, name: str, reason: str) -> pb.RevokeParticipantResponse:
        """Refuse a participant's certificates from now on."""
        request = pb.RevokeParticipantRequest(name=name, reason=reason)
        return self._ask("RevokeParticipant", pb.RevokeParticipantResponse, request)

    def restore(self, name: str, reason: str) -> pb.RestoreParticipantResponse:
        """Undo the revocation of a participant."""
        request = pb.RestoreParticipantRequest(name=name, reason=reason)
        return self._ask("RestoreParticipant", pb.RestoreParticipantResponse, request)

    def audit(self, run_id: str) -> Iterator[pb.AuditEntry]:
        """The audit log of one run, or (empty) of all, streamed; from an operator no entry may be withheld."""
        request = pb.FetchAuditLogRequest(run_id=run_id)
        entries = self._stream("FetchAuditLog", pb.AuditEntry, request, 4 * SECONDS)
        return all_shown(entries) if self._identity.role is Role.OPERATOR else entries

    def model(self, run_id: str) -> Iterator[types_pb2.TensorPart]:
        """The model of a finished run, streamed."""
        return self._stream("FetchModel", types_pb2.TensorPart, pb.FetchModelRequest(run_id=run_id))

    def request_export(self, run_id: str) -> pb.ExportView:
        """Ask the cohort for reconstructions."""
        return self._ask("RequestExport", pb.ExportView, pb.RequestExportRequest(run_id=run_id))

    def export(self, run_id: str, wait: float = 0.0) -> pb.ExportView:
        """The state of the export: files, refusals, sites awaited; after its next change, within `wait` seconds."""
        wait_ms = int(1000 * min(max(wait, 0.0), SECONDS / 2))
        return self._ask("GetExport", pb.ExportView, pb.GetExportRequest(run_id=run_id, wait_ms=wait_ms))

    def reconstruction(self, run_id: str, file: pb.ExportedFile, offset: int) -> Iterator[types_pb2.Chunk]:
        """One exported file from `offset` on, streamed."""
        request = pb.FetchReconstructionRequest(
            run_id=run_id, participant=file.participant, artifact=file.artifact, offset=offset
        )
        return self._stream("FetchReconstruction", types_pb2.Chunk, request)

    def _ask(self, name: str, _answer: type[Answer], request: object) -> Answer:
        return cast(Answer, getattr(self._stub, name)(request, timeout=SECONDS))

    def _stream(
        self, name: str, _answer: type[Answer], request: object, seconds: float | None = None
    ) -> Iterator[Answer]:
        return cast(Iterator[Answer], getattr(self._stub, name)(request, timeout=seconds))


_HINT = "\nhint: "

LOST = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})
"""Statuses after which a retry may succeed."""


def is_lost(error: grpc.RpcError) -> bool:
    """True if the connection was lost, as opposed to the aggregator refusing the call."""
    return isinstance(error, grpc.Call) and error.code() in LOST


def explain(error: grpc.RpcError, address: Address, files: TlsFiles) -> DcfpcaError:
    """The error to show. If the aggregator is unavailable, the connection is diagnosed first."""
    if not isinstance(error, grpc.Call):
        return DcfpcaError(f"the call to {address} failed: {error}")
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE:
        return diagnose(address, files) or unavailable(address, details)
    return translate(code, details, address)


def unavailable(address: Address, details: str) -> DcfpcaError:
    """The network works but the service does not answer: it is restarting, draining, or refused the certificate."""
    sentence = f"the aggregator at {address} is not serving: {details or 'no reason was given'}"
    return Unreachable(sentence, "it may be restarting; try again in a moment")


def translate(code: grpc.StatusCode, details: str, address: Address) -> DcfpcaError:
    """The error that a status and its message stand for."""
    sentence, _, hint = details.partition(_HINT)
    match code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return Unreachable(f"the aggregator at {address} did not answer in time", hint or "try again")
        case grpc.StatusCode.UNAUTHENTICATED:
            remedy = hint or "use an operator certificate of this consortium that is neither expired nor revoked"
            return BadIdentity(f"the aggregator does not accept this certificate: {sentence}", remedy)
        case grpc.StatusCode.PERMISSION_DENIED:
            return Refused(f"not permitted: {sentence}", hint)
        case grpc.StatusCode.INVALID_ARGUMENT:
            return BadInput(sentence, hint)
        case grpc.StatusCode.NOT_FOUND:
            return Refused(sentence, hint or "`dcfpca run list` and `dcfpca participants list` list what exists")
        case grpc.StatusCode.FAILED_PRECONDITION | grpc.StatusCode.ALREADY_EXISTS:
            return Refused(sentence, hint)
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return Refused(sentence, hint or "try again in a while")
        case grpc.StatusCode.UNIMPLEMENTED:
            remedy = "check the port, and that aggregator and command are of the same version"
            return Unreachable(f"what listens at {address} does not offer this call", remedy)
        case _:
            return DcfpcaError(f"the aggregator failed ({code.name}): {sentence}", hint or "see the aggregator's log")
