"""From our errors to gRPC statuses: the sentence and the hint travel in the status message."""

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
    """Right in itself, but not in the present state."""


class Overloaded(DcfpcaError):
    """Over a limit; later it may pass."""


class TooSlow(DcfpcaError):
    """The peer did not read or write for too long; over a better line it may pass."""


class Draining(DcfpcaError):
    """The service stops or restarts; another try in a moment will do."""


class AlreadyHere(DcfpcaError):
    """This identity has an open stream."""


class Unheard(DcfpcaError):
    """A method that the standard services describe and this one does not offer."""


class Defect(DcfpcaError):
    """Something went wrong that nobody had thought of. The caller is told no more than that."""


_STATUS: tuple[tuple[type[DcfpcaError], grpc.StatusCode], ...] = (
    (Missing, Code.NOT_FOUND),
    (Unheard, Code.UNIMPLEMENTED),
    (OutOfTurn, Code.FAILED_PRECONDITION),
    (Overloaded, Code.RESOURCE_EXHAUSTED),
    (TooSlow, Code.DEADLINE_EXCEEDED),
    (AlreadyHere, Code.ALREADY_EXISTS),
    (StoreFailed, Code.UNAVAILABLE),
    (Draining, Code.UNAVAILABLE),
    (BadInput, Code.INVALID_ARGUMENT),
    (BadMessage, Code.INVALID_ARGUMENT),
    (BadIdentity, Code.UNAUTHENTICATED),
    (Refused, Code.PERMISSION_DENIED),
)


def status_of(error: DcfpcaError) -> tuple[grpc.StatusCode, str]:
    """The status and message that tell this error."""
    code = next((code for kind, code in _STATUS if isinstance(error, kind)), Code.INTERNAL)
    return code, f"{error}\nhint: {error.hint}" if error.hint else str(error)


def as_ours(error: Exception, method: str) -> DcfpcaError:
    """The error itself where it is one of ours; else it is written to the log, and the caller hears of a defect."""
    if isinstance(error, DcfpcaError):
        return error
    if isinstance(error, NotImplementedError):
        return Unheard("this service does not offer the method")
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
