"""The health of the service: the store can be written, and the certificate is valid."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Protocol

from aggregator.store_thread import StoreThread
from aggregator.trust import Trust
from dcfpca.errors import DcfpcaError
from dcfpca.logs import log

CHECK_SECONDS = 2.0


class TellHealth(Protocol):
    """Sets the status that health probes receive."""

    def __call__(self, *, serving: bool) -> Awaitable[None]:
        """Tell probes from now on whether the service can do its work."""


async def watch_health(tell: TellHealth, store: StoreThread, trust: Trust) -> None:
    """Check every CHECK_SECONDS, for ever, and tell probes when the result changes."""
    serving = True
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        reason = await _problem(store, trust)
        if (reason is None) != serving:
            serving = reason is None
            log("health_changed", level="info" if serving else "error", serving=serving, reason=reason)
            await tell(serving=serving)


async def _problem(store: StoreThread, trust: Trust) -> str | None:
    if trust.credentials.not_after < datetime.now(UTC):
        return "the aggregator's certificate has expired"
    try:
        await store.do(lambda opened: opened.check_writable())
    except DcfpcaError as error:
        return str(error)
    return None
