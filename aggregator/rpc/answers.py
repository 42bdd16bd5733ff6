"""What a caller is told: a receipt for a message, or a status for an error, with its sentence and hint."""

from __future__ import annotations

import traceback
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from aggregator.run.attempts import ACCEPTED, Reply
from aggregator.run_registry import RunRegistry
from aggregator.runner import Runner
from aggregator.store.database import StoreFailed
from aggregator.trust import CALLER
from dcfpca.errors import BadIdentity, BadInput, BadMessage, DcfpcaError, Refused
from dcfpca.identity import Role
from dcfpca.logs import log
from dcfpca.v1.types_pb2 import FATE_ACCEPTED, FATE_DUPLICATE, FATE_LATE, FATE_REJECTED, Receipt
from dcfpca.wire.receipt import Fate

Code = grpc.StatusCode

_FATES = {
    Fate.ACCEPTED: FATE_ACCEPTED,
    Fate.DUPLICATE: FATE_DUPLICATE,
    Fate.REJECTED: FATE_REJECTED,
    Fate.LATE: FATE_LATE,
}


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
        return BadMessage("the message is not one of this protocol")
    where = traceback.extract_tb(error.__traceback__)[-1]
    log(
        "call_failed",
        level="error",
        method=method.rsplit("/", 1)[-1],
        reason=f"{type(error).__name__}: {error}",
        where=f"{where.filename}:{where.lineno}",
    )
    return Defect("the aggregator failed during this call; its log says more", "report it with the log")


def receipt(reply: Reply | None) -> Receipt:
    """The receipt that tells the sender this reply; without one the message was accepted."""
    reply = reply or ACCEPTED
    return Receipt(fate=_FATES[reply.fate], reason=reply.reason)


def logged_receipt(registry: RunRegistry, what: str, reply: Reply | None, **about: Any) -> Receipt:
    """The same, after counting and logging what became of the message."""
    reply = reply or ACCEPTED
    registry.telemetry.messages.labels(what, reply.fate.value).inc()
    # Late messages are normal: a phase closes once it has enough answers.
    level: Any = "warning" if reply.fate is Fate.REJECTED else "debug"
    word = "update" if what == "update" else "message"
    log(f"{word}_{reply.fate.value}", level=level, message=what, reason=reply.reason or None, **about)
    return Receipt(fate=_FATES[reply.fate], reason=reply.reason)


async def runner_of(registry: RunRegistry, run_id: str) -> Runner:
    """The run of this id; raises Missing, or what is wrong with a run that cannot be served.

    A participant is told to try again later: a run that is held is not over.
    """
    if held := registry.held.get(run_id):
        kind = StoreFailed if CALLER.get().identity.role is Role.PARTICIPANT else OutOfTurn
        raise kind(f"run {run_id} cannot be served: {held.reason}", held.hint)
    runner = registry.runners.get(run_id) or await registry.find(run_id)
    if runner is None:
        raise Missing(f"there is no run {run_id[:80]!r}", "`dcfpca run list` shows them")
    return runner
