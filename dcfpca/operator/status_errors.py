"""Turns gRPC status codes into errors with a sentence and a hint, for operators."""

from __future__ import annotations

import grpc

from dcfpca.errors import BadIdentity, BadInput, DcfpcaError, Refused, Unreachable
from dcfpca.wire.addresses import Address, TlsFiles, diagnose

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
            remedy = hint or "use a certificate with the role operator"
            return Refused(f"not permitted: {sentence}", remedy)
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
