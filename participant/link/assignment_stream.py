"""Keeps the stream of assignments open: reconnects with backoff, logs each change of the failure once, and raises when
retrying cannot help."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import grpc

from dcfpca.atomic_files import file_version
from dcfpca.errors import BadIdentity, DcfpcaError, Refused, Unreachable
from dcfpca.identity import Role
from dcfpca.logs import log
from dcfpca.pki.credential_files import Credentials, load_credentials
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.wire.addresses import Address, TlsFiles, diagnose
from dcfpca.wire.constants import CONSENSUS_WANTED
from participant.link.calls import TOO_LARGE, Backoff, Link, StreamReplaced, is_too_large

WATCH_SECONDS = 2.0
RENAMED = "the new certificate has another name"
# After a restart or a network failure the aggregator may take this long to notice that the old stream is dead.
STARTING_RETRY_SECONDS = 15.0
CONNECTED_RETRY_SECONDS = 120.0
DIAGNOSIS_SECONDS = 3.0
"""How long the cause of a failed connection is sought."""
STEADY_SECONDS = 1.0
"""A connection that ended sooner is no reason to dial again at once: what ends it may come with each."""
PROBE_SECONDS = 2.0
"""How often the standbys are asked whether they serve."""
STANDBY_SECONDS = 1.0
"""The same where a standby may serve by now: waiting longer for a hung aggregator would keep the site from it."""


class Connection:
    """The daemon's one stream, with credentials that may be replaced on disk at any time."""

    def __init__(self, files: TlsFiles, link: Link, tell: Callable[[bool], None] = lambda _connected: None) -> None:
        self._tell = tell
        self._files = files
        self._link = link
        self._was_connected = False
        self._dialled, self._wanted = False, ""
        self._failures: dict[Address, str] = {}
        self._rejected_since: float | None = None
        self._since = float("inf")
        self._backoff = Backoff(link.longest_wait)

    async def assignments(
        self, greeting: Callable[[str], pb.SubscribeRequest], dialling: Callable[[pb.SubscribeRequest], None]
    ) -> AsyncIterator[pb.Assignment]:
        """Yield assignments across reconnections; raises DcfpcaError when retrying cannot help.

        `greeting` is given the run whose consensus the aggregator has asked for, if it has. `dialling` is called before
        the first attempt to connect, and again after each that was established or answered with such a question.
        """
        while True:
            hello = greeting(self._wanted)
            if not self._dialled:
                dialling(hello)
                self._dialled = True
            try:
                async for assignment in self._link.subscribe(hello, self._connected):
                    yield assignment
                self._log_change(
                    ConnectionFailure("unavailable", Recovery.RETRY, Unreachable("the aggregator closed the stream"))
                )
            except grpc.aio.AioRpcError as error:
                self._tell(False)
                if (wanted := _wanted_by(error)) or is_too_large(error):
                    self._wanted, self._dialled = wanted, False  # what it brings along is another message
                patience = STANDBY_SECONDS if self._link.has_standby else DIAGNOSIS_SECONDS
                failure = await asyncio.to_thread(classify_failure, error, self._link.address, self._files, patience)
                self._stop_or_retry(failure)
                await self._link.redial(anew=is_too_large(error))
            except StreamReplaced:
                if not self._link.flooded:  # what was too large may be told again with each connection
                    self._backoff.reset()
            if asyncio.get_running_loop().time() - self._since >= STEADY_SECONDS:
                self._backoff.reset()
            self._since = float("inf")
            await self._backoff.wait()

    async def watch_standbys(self) -> None:
        """Go to a standby as soon as it says that it serves: one that was paused or cut off does not close its streams.

        The standby is asked and not the present aggregator: a slow answer of this one would prove nothing, while only
        the holder of the lease says that it serves.
        """
        while self._link.has_standby:
            await asyncio.sleep(PROBE_SECONDS)
            if (address := await self._link.serving_elsewhere(STANDBY_SECONDS)) is not None:
                log("standby_serves", aggregator=str(address))
                await self._link.move_to(address)
        await asyncio.Event().wait()  # without a standby there is nothing to watch

    async def watch_credentials(self, current: Credentials, renewed: Callable[[Credentials], None]) -> None:
        """Load certificate, key and CA bundle whenever the files change; unusable ones are logged and not used."""
        paths = (self._files.ca, self._files.cert, self._files.key)
        seen = [file_version(path) for path in paths]
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if (now := [file_version(path) for path in paths]) == seen:
                continue
            seen = now
            with contextlib.suppress(OSError):
                current = await self._renew(current, renewed)

    async def _renew(self, current: Credentials, renewed: Callable[[Credentials], None]) -> Credentials:
        files = self._files
        try:
            fresh = load_credentials(files.ca, files.cert, files.key, now=datetime.now(UTC), role=Role.PARTICIPANT)
        except BadIdentity as error:
            log("credentials_rejected", level="warning", reason=str(error), hint=error.hint)
            return current
        if fresh.identity != current.identity:
            log("credentials_rejected", level="warning", reason=RENAMED, hint="restart the daemon to use it")
            return current
        log("credentials_renewed", until=fresh.not_after.isoformat())
        renewed(fresh)
        await self._link.renew(fresh)
        return fresh

    def _connected(self) -> None:
        log("connected", aggregator=str(self._link.address))
        self._tell(True)
        self._was_connected = True
        self._dialled, self._wanted = False, ""
        self._failures.clear()
        self._rejected_since = None
        self._since = asyncio.get_running_loop().time()

    def _stop_or_retry(self, failure: ConnectionFailure) -> None:
        """Log the failure if another attempt can help, raise its error otherwise."""
        recovery = failure.recovery
        # After a working connection this is likely to be repaired meanwhile; at the first start the user must know.
        stop = recovery is Recovery.STOP or (recovery is Recovery.FIX_FIRST and not self._was_connected)
        if recovery is Recovery.RETRY_A_WHILE:
            stop = self._retried_long_enough()
        else:
            self._rejected_since = None
        if stop:
            raise failure.error
        self._log_change(failure)

    def _retried_long_enough(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._rejected_since = self._rejected_since or now
        return now - self._rejected_since > (CONNECTED_RETRY_SECONDS if self._was_connected else STARTING_RETRY_SECONDS)

    def _log_change(self, failure: ConnectionFailure) -> None:
        """Log the failure, but not again while it stays the same at this address."""
        if failure.kind != self._failures.get(self._link.address):
            error = failure.error
            log(failure.kind, level="warning", reason=str(error), hint=error.hint or None, now=failure.recovery.value)
        self._failures[self._link.address] = failure.kind


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


def classify_failure(
    error: grpc.aio.AioRpcError, address: Address, files: TlsFiles, seconds: float = DIAGNOSIS_SECONDS
) -> ConnectionFailure:
    """Classify a failed call. For an unreachable aggregator this opens a connection to find the cause."""
    said = (error.details() or "").partition("\nhint: ")[0]
    match error.code():
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED | grpc.StatusCode.DEADLINE_EXCEEDED:
            return _unavailable(said, address, files, seconds)
        case grpc.StatusCode.RESOURCE_EXHAUSTED if is_too_large(error):
            return ConnectionFailure("message_too_large", Recovery.RETRY, Unreachable(f"{TOO_LARGE}: {said}"))
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


def _wanted_by(error: grpc.aio.AioRpcError) -> str:
    """The run whose consensus an aggregator asks for that refuses the subscription; empty if it asks for none."""
    said: Any = error.trailing_metadata() or ()
    return next((str(value) for key, value in said if key == CONSENSUS_WANTED), "")


def _unavailable(said: str, address: Address, files: TlsFiles, seconds: float) -> ConnectionFailure:
    found = diagnose(address, files, seconds)
    if isinstance(found, BadIdentity):
        return ConnectionFailure("refused_by_tls", Recovery.FIX_FIRST, found)
    if found is not None:
        return ConnectionFailure("unreachable", Recovery.RETRY, found)
    sentence = f"the aggregator at {address} is not serving: {said or 'it closed the connection'}"
    return ConnectionFailure("unavailable", Recovery.RETRY, Unreachable(sentence))
