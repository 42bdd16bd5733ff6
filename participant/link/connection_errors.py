"""Classifies why the stream broke or was rejected, and what the daemon does about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import grpc

from dcfpca.connection_diagnosis import Address, TlsFiles, diagnose
from dcfpca.errors import BadIdentity, DcfpcaError, Refused, Unreachable


class Recovery(Enum):
    """The daemon's reaction to a connection error."""

    RETRY = "retrying"
    RETRY_A_WHILE = "retrying for a while"
    FIX_FIRST = "waiting for a change of the configuration"
    STOP = "stopping"


@dataclass(frozen=True, slots=True)
class ConnectionFailure:
    """One failure of the connection; `kind` is its action in the log, and a change of it is logged."""

    kind: str
    recovery: Recovery
    error: DcfpcaError


def classify_failure(error: grpc.aio.AioRpcError, address: Address, files: TlsFiles) -> ConnectionFailure:
    """Classify a failed call. For an unreachable aggregator this opens a connection to find the cause."""
    said = (error.details() or "").partition("\nhint: ")[0]
    match error.code():
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED | grpc.StatusCode.DEADLINE_EXCEEDED:
            return _unavailable(said, address, files)
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return ConnectionFailure("overloaded", Recovery.RETRY, Unreachable(f"the aggregator is overloaded: {said}"))
        case grpc.StatusCode.ALREADY_EXISTS:
            hint = "stop the other daemon; each participant runs one, with a certificate of its own"
            sentence = "another daemon with this participant's certificate is connected"
            return ConnectionFailure("already_connected", Recovery.RETRY_A_WHILE, Refused(sentence, hint))
        case grpc.StatusCode.UNAUTHENTICATED:
            hint = "have a certificate issued with `dcfpca certs`"
            sentence = f"the aggregator does not accept this certificate: {said}"
            return ConnectionFailure("unauthenticated", Recovery.FIX_FIRST, BadIdentity(sentence, hint))
        case grpc.StatusCode.PERMISSION_DENIED:
            hint = "ask the operator; a revoked certificate must be replaced by one with a new key"
            return ConnectionFailure(
                "not_permitted", Recovery.STOP, Refused(f"the aggregator rejected this site: {said}", hint)
            )
        case grpc.StatusCode.FAILED_PRECONDITION | grpc.StatusCode.UNIMPLEMENTED:
            hint = "install the version that the message names"
            return ConnectionFailure(
                "incompatible_version", Recovery.STOP, Refused(said or "incompatible versions", hint)
            )
        case _:
            sentence = f"the aggregator failed ({error.code().name}): {said}"
            return ConnectionFailure(
                "aggregator_failed", Recovery.RETRY, Unreachable(sentence, "see the aggregator's log")
            )


def _unavailable(said: str, address: Address, files: TlsFiles) -> ConnectionFailure:
    found = diagnose(address, files)
    if isinstance(found, BadIdentity):
        return ConnectionFailure("refused_by_tls", Recovery.FIX_FIRST, found)
    if found is not None:
        return ConnectionFailure("unreachable", Recovery.RETRY, found)
    sentence = f"the aggregator at {address} is not serving: {said or 'it closed the connection'}"
    return ConnectionFailure("unavailable", Recovery.RETRY, Unreachable(sentence))
