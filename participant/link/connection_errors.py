"""Why the stream broke or was turned away, told apart, with what can be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import grpc

from dcfpca.connection_diagnosis import Address, TlsFiles, diagnose
from dcfpca.errors import BadIdentity, DcfpcaError, Refused, Unreachable


class Remedy(Enum):
    """What the daemon does next."""

    RETRY = "trying again by itself"
    RETRY_A_WHILE = "trying again for a while"
    FIX_FIRST = "somebody must change something first"
    STOP = "stopping"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One kind of trouble; `kind` is the word in the log, by which a change is noticed."""

    kind: str
    remedy: Remedy
    error: DcfpcaError


def trouble_of(error: grpc.aio.AioRpcError, address: Address, files: TlsFiles) -> Trouble:
    """Tell what went wrong. An unreachable aggregator is looked at more closely, which takes a connection."""
    said = (error.details() or "").partition("\nhint: ")[0]
    match error.code():
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED | grpc.StatusCode.DEADLINE_EXCEEDED:
            return _unavailable(said, address, files)
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return Trouble("overloaded", Remedy.RETRY, Unreachable(f"the aggregator is overloaded: {said}"))
        case grpc.StatusCode.ALREADY_EXISTS:
            hint = "stop the other daemon; each participant runs one, with a certificate of its own"
            sentence = "another daemon with this participant's certificate is connected"
            return Trouble("already_connected", Remedy.RETRY_A_WHILE, Refused(sentence, hint))
        case grpc.StatusCode.UNAUTHENTICATED:
            hint = "have a certificate issued with `dcfpca certs`"
            sentence = f"the aggregator does not accept this certificate: {said}"
            return Trouble("unauthenticated", Remedy.FIX_FIRST, BadIdentity(sentence, hint))
        case grpc.StatusCode.PERMISSION_DENIED:
            hint = "ask the operator; a revoked certificate must be replaced by one with a new key"
            return Trouble("not_permitted", Remedy.STOP, Refused(f"the aggregator turned this site away: {said}", hint))
        case grpc.StatusCode.FAILED_PRECONDITION | grpc.StatusCode.UNIMPLEMENTED:
            hint = "install the version that the message names"
            return Trouble("incompatible_version", Remedy.STOP, Refused(said or "incompatible versions", hint))
        case _:
            sentence = f"the aggregator failed ({error.code().name}): {said}"
            return Trouble("aggregator_failed", Remedy.RETRY, Unreachable(sentence, "see the aggregator's log"))


def _unavailable(said: str, address: Address, files: TlsFiles) -> Trouble:
    found = diagnose(address, files)
    if isinstance(found, BadIdentity):
        return Trouble("refused_by_tls", Remedy.FIX_FIRST, found)
    if found is not None:
        return Trouble("unreachable", Remedy.RETRY, found)
    sentence = f"the aggregator at {address} is not serving now: {said or 'it closed the connection'}"
    return Trouble("unavailable", Remedy.RETRY, Unreachable(sentence))
