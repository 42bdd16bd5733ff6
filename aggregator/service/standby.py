"""The life of an aggregator with a shared database: it waits for the lease, keeps it, and ends when it is lost."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aggregator.config import Config
from aggregator.rpc.server import StandbyServer
from aggregator.store.database import StoreFailed
from aggregator.store.postgresql import HELD_SECONDS, LEASE_SECONDS, RENEW_SECONDS, Lease, LeaseLost
from aggregator.trust import Trust
from dcfpca.errors import DcfpcaError
from dcfpca.logs import log

POLL_SECONDS = 0.5
_SILENT = "the database does not answer"

Announce = Callable[[Config, int], None]


def lease_for(config: Config, trust: Trust) -> Lease:
    """The lease of this aggregator, under a name by which people find its machine."""
    listen = f"{socket.gethostname()}:{config.server.listen.rpartition(':')[2]}"
    return Lease(config.store.database_url(), f"{trust.credentials.identity} on {listen}")


async def stand_by(config: Config, lease: Lease, trust: Trust, stopping: asyncio.Event, announce: Announce) -> Config:
    """Wait until the lease is ours, or until told to stop; returns the configuration with the port it listened on."""
    if await _taken(lease):
        return config
    server = StandbyServer(config, trust, lambda: lease.last_holder)
    await server.start()
    host = config.server.listen.rpartition(":")[0]
    config = config.model_copy(update={"server": config.server.model_copy(update={"listen": f"{host}:{server.port}"})})
    announce(config, server.port)
    watcher = asyncio.create_task(trust.watch(lambda: None))
    try:
        await _until(lambda: _taken(lease), stopping)
    finally:
        watcher.cancel()
        await server.stop()
    return config


async def _until(done: Callable[[], Awaitable[bool]], stopping: asyncio.Event) -> None:
    while not stopping.is_set() and not await done():
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), POLL_SECONDS)


async def _taken(lease: Lease) -> bool:
    try:
        return await asyncio.to_thread(lease.take)
    except StoreFailed:
        return False  # the database does not answer, or a transaction of the holder is in the way


class LeaseKeeper:
    """Renews the lease from a thread of its own, so that a busy event loop does not lose it.

    When the lease is lost, or cannot be renewed until it is about to run out, the process ends at once, as if it had
    been killed: nothing was acknowledged that is not in the database, and its supervisor starts it again as a standby.
    A second thread counts the seconds, because a renewal that is never answered does not fail.
    """

    def __init__(self, lease: Lease, end: Callable[[int], None] = os._exit) -> None:
        self._lease, self._end = lease, end
        self._stopped = threading.Event()
        self._seconds, self._renewed, self._trouble = 0.0, 0.0, _SILENT
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()
        threading.Thread(target=self._count, name="lease-count", daemon=True).start()

    def _keep(self) -> None:
        while not self._stopped.wait(RENEW_SECONDS):
            asked = self._seconds
            try:
                self._lease.renew()
                self._renewed, self._trouble = asked, _SILENT
            except LeaseLost as error:
                return self._lost(str(error))
            except DcfpcaError as error:
                self._trouble = str(error)
        return None

    def _count(self) -> None:
        """By turns of this thread and not by a clock: a process that was paused may renew, if nobody took over."""
        while not self._stopped.wait(RENEW_SECONDS):
            self._seconds += RENEW_SECONDS
            if self._seconds - self._renewed > HELD_SECONDS:  # before another can take it
                return self._lost(self._trouble)
        return None

    def _lost(self, reason: str) -> None:
        log("lease_lost", level="error", reason=reason, hint="this aggregator ends; start it again as a standby")
        sys.stderr.flush()
        self._end(1)

    def release(self) -> None:
        """Give the lease back, for another to take at once."""
        self._stopped.set()
        self._thread.join(LEASE_SECONDS)
        if self._thread.is_alive():
            return  # the renewal under way has the connection, and is not answered
        with suppress(DcfpcaError):
            self._lease.release()
        self._lease.close()
