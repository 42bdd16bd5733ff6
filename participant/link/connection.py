"""Keeps the stream of assignments open: reconnects with backoff, says what is wrong once per change, gives up where
retrying cannot help."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import grpc

from dcfpca.connection_diagnosis import Address, TlsFiles
from dcfpca.errors import BadIdentity, Unreachable
from dcfpca.identity import Role
from dcfpca.logs import log
from dcfpca.pki import Credentials, load_credentials
from dcfpca.v1 import rounds_pb2 as pb
from participant.link.calls import Backoff, Link, Renewed
from participant.link.connection_errors import Remedy, Trouble, trouble_of

WATCH_SECONDS = 2.0
# After a restart or a broken network the aggregator may take this long to notice that the old stream is dead.
STARTING_PATIENCE = 15.0
LIVING_PATIENCE = 120.0


class Connection:
    """The daemon's one stream, under credentials that may be replaced on disk at any time."""

    def __init__(
        self, address: str, files: TlsFiles, link: Link, tell: Callable[[bool], None] = lambda _connected: None
    ) -> None:
        self._tell = tell
        self._address = Address.parse(address)
        self._files = files
        self._link = link
        self._was_connected = False
        self._dialled = False
        self._trouble = ""
        self._turned_away_since: float | None = None
        self._backoff = Backoff()

    async def assignments(
        self, greeting: Callable[[], pb.SubscribeRequest], dialling: Callable[[pb.SubscribeRequest], None]
    ) -> AsyncIterator[pb.Assignment]:
        """Assignments for as long as the daemon lives; raises DcfpcaError when there is no point in going on.

        `dialling` is called before a connection is tried, though not again until one has come about.
        """
        while True:
            hello = greeting()
            if not self._dialled:
                dialling(hello)
                self._dialled = True
            try:
                async for assignment in self._link.subscribe(hello, self._connected):
                    yield assignment
                self._say(Trouble("unavailable", Remedy.RETRY, Unreachable("the aggregator closed the stream")))
            except grpc.aio.AioRpcError as error:
                self._tell(False)
                trouble = await asyncio.to_thread(trouble_of, error, self._address, self._files)
                self._judge(trouble)
                await self._link.redial()
            except Renewed:
                self._backoff.reset()
            await self._backoff.wait()

    async def watch_credentials(self, current: Credentials, renewed: Callable[[Credentials], None]) -> None:
        """Take up certificate, key and CA bundle whenever the files change; a pair that does not fit is left alone."""
        seen = _stamps(self._files)
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if (now := _stamps(self._files)) == seen:
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
            log(
                "credentials_rejected", level="warning", reason="the new certificate has another name; restart for that"
            )
            return current
        log("credentials_renewed", until=fresh.not_after.isoformat())
        renewed(fresh)
        await self._link.renew(fresh)
        return fresh

    def _connected(self) -> None:
        log("connected", aggregator=str(self._address))
        self._tell(True)
        self._was_connected = True
        self._dialled = False
        self._trouble = ""
        self._turned_away_since = None
        self._backoff.reset()

    def _judge(self, trouble: Trouble) -> None:
        """Go on trying, or raise."""
        remedy = trouble.remedy
        # One that worked before is likely to be put right while we wait; one that never did needs its user now.
        stop = remedy is Remedy.STOP or (remedy is Remedy.FIX_FIRST and not self._was_connected)
        if remedy is Remedy.RETRY_A_WHILE:
            stop = self._patience_is_over()
        else:
            self._turned_away_since = None
        if stop:
            raise trouble.error
        self._say(trouble)

    def _patience_is_over(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._turned_away_since = self._turned_away_since or now
        return now - self._turned_away_since > (LIVING_PATIENCE if self._was_connected else STARTING_PATIENCE)

    def _say(self, trouble: Trouble) -> None:
        """Once per change, not every second."""
        if trouble.kind != self._trouble:
            error = trouble.error
            log(trouble.kind, level="warning", reason=str(error), hint=error.hint or None, now=trouble.remedy.value)
        self._trouble = trouble.kind


def _stamps(files: TlsFiles) -> tuple[tuple[int, int], ...]:
    return tuple(_stamp(path) for path in (files.ca, files.cert, files.key))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_ino)
