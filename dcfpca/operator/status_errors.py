"""From a gRPC status to a sentence and a hint. The only place that knows which status means what to a person."""

from __future__ import annotations

import grpc

from dcfpca.connection_diagnosis import Address, TlsFiles, diagnose
from dcfpca.errors import BadIdentity, BadInput, DcfpcaError, Refused, Unreachable

_HINT = "\nhint: "

LOST = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})
"""Statuses after which trying again may help."""


def is_lost(error: grpc.RpcError) -> bool:
    """Whether the connection broke, rather than the aggregator having said no."""
    return isinstance(error, grpc.Call) and error.code() in LOST


def explain(error: grpc.RpcError, address: Address, files: TlsFiles) -> DcfpcaError:
    """The error to show. An unreachable aggregator is looked at more closely first."""
    if not isinstance(error, grpc.Call):
        return DcfpcaError(f"the call to {address} failed: {error}")
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE:
        return diagnose(address, files) or unavailable(address, details)
    return translate(code, details, address)


def unavailable(address: Address, details: str) -> DcfpcaError:
    """All layers work, and yet there is no service: it is restarting, draining, or turned the certificate away."""
    sentence = f"the aggregator at {address} is not serving now: {details or 'it gave no reason'}"
    return Unreachable(sentence, "it may be restarting; try again in a moment")


def translate(code: grpc.StatusCode, details: str, address: Address) -> DcfpcaError:
    """A status and its message, as the error that it stands for."""
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
            return Refused(sentence, hint or "`dcfpca run list` and `dcfpca participants list` show what there is")
        case grpc.StatusCode.FAILED_PRECONDITION | grpc.StatusCode.ALREADY_EXISTS:
            return Refused(sentence, hint)
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return Refused(sentence, hint or "try again in a while")
        case grpc.StatusCode.UNIMPLEMENTED:
            remedy = "check the port, and that aggregator and command are of the same version"
            return Unreachable(f"what listens at {address} does not know this call", remedy)
        case _:
            return DcfpcaError(f"the aggregator failed ({code.name}): {sentence}", hint or "see the aggregator's log")
