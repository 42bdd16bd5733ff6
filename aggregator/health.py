"""Truthful health: the store can be written and the certificate is valid, looked at all the time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from aggregator.rpc.server import Server
from aggregator.store_thread import Keeper
from aggregator.trust import Trust
from dcfpca.errors import DcfpcaError
from dcfpca.logs import log

LOOK_SECONDS = 2.0


async def watch_health(server: Server, keeper: Keeper, trust: Trust) -> None:
    """Tell probes for ever whether this service can do its work."""
    serving = True
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        reason = await _trouble(keeper, trust)
        if (reason is None) != serving:
            serving = reason is None
            log("health_changed", level="info" if serving else "error", serving=serving, reason=reason)
            await server.tell_health(serving=serving)


async def _trouble(keeper: Keeper, trust: Trust) -> str | None:
    if trust.credentials.not_after < datetime.now(UTC):
        return "the aggregator's certificate has expired"
    try:
        await keeper.do(lambda store: store.check_writable())
    except DcfpcaError as error:
        return str(error)
    return None
