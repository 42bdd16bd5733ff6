"""From errors to gRPC statuses; the status message carries the sentence and the hint."""

from __future__ import annotations

import traceback

import grpc
from google.protobuf.message import DecodeError

from aggregator.store.database import StoreFailed
from dcfpca.errors import BadIdentity, BadInput, BadMessage, DcfpcaError, Refused
from dcfpca.logs import log

Code = grpc.StatusCode


class Missing(DcfpcaError):
    """There is no such run, participant or file."""


class OutOfTurn(DcfpcaError):
    """A valid request that does not fit the present state."""


class Overloaded(DcfpcaError):
    """A limit was exceeded; the request may succeed later."""


class TooSlow(DcfpcaError):
    """The peer did not read or write for too long."""


class Draining(DcfpcaError):
    """The service is stopping; the request may succeed after its restart."""


class AlreadyConnected(DcfpcaError):
    """This identity has an open stream."""


class NotOffered(DcfpcaError):
    """A method that the standard services describe and this one does not offer."""


class Defect(DcfpcaError):
    """An unexpected exception; its details go to the log and not to the caller."""


_STATUS: tuple[tuple[type[DcfpcaError], grpc.StatusCode], ...] = (
    (Missing, Code.NOT_FOUND),
    (NotOffered, Code.UNIMPLEMENTED),
    (OutOfTurn, Code.FAILED_PRECONDITION),
    (Overloaded, Code.RESOURCE_EXHAUSTED),
    (TooSlow, Code.DEADLINE_EXCEEDED),
    (AlreadyConnected, Code.ALREADY_EXISTS),
    (StoreFailed, Code.UNAVAILABLE),
    (Draining, Code.UNAVAILABLE),
    (BadInput, Code.INVALID_ARGUMENT),
    (BadMessage, Code.INVALID_ARGUMENT),
    (BadIdentity, Code.UNAUTHENTICATED),
    (Refused, Code.PERMISSION_DENIED),
)


def status_of(error: DcfpcaError) -> tuple[grpc.StatusCode, str]:
    """The status code and message for this error."""
    code = next((code for kind, code in _STATUS if isinstance(error, kind)), Code.INTERNAL)
    return code, f"{error}\nhint: {error.hint}" if error.hint else str(error)


def as_dcfpca_error(error: Exception, method: str) -> DcfpcaError:
    """The error itself if it is a DcfpcaError; any other is logged and becomes a Defect."""
    if isinstance(error, DcfpcaError):
        return error
    if isinstance(error, NotImplementedError):
        return NotOffered("this service does not offer the method")
    if isinstance(error, DecodeError):
        return BadMessage("what came is no message of this protocol")
    where = traceback.extract_tb(error.__traceback__)[-1]
    log(
        "call_failed",
        level="error",
        method=method.rsplit("/", 1)[-1],
        reason=f"{type(error).__name__}: {error}",
        where=f"{where.filename}:{where.lineno}",
    )
    return Defect("the aggregator failed at this call; its log says more", "report it with the log")
