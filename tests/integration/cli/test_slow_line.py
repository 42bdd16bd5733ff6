"""The operator's command over a line on which a TLS handshake takes seconds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dcfpca.identity import Role
from dcfpca.operator.connection import ConnectionSettings, connected
from dcfpca.wire.addresses import Address, TlsFiles
from tests.support.services.service import service
from tests.support.surroundings.proxy import Proxy


def _count_runs(settings: ConnectionSettings) -> int:
    with connected(settings) as operator:
        return len(operator.runs())


@pytest.mark.slow
async def test_the_operator_connects_though_every_packet_takes_a_third_of_a_second(tmp_path: Path) -> None:
    async with service(tmp_path) as site:
        files = site.identity(Role.OPERATOR, "op")
        proxy = Proxy(f"127.0.0.1:{site.port}", delay=0.33)
        settings = ConnectionSettings(Address.parse(proxy.address), TlsFiles(files.ca, files.certificate, files.key))
        try:
            assert await asyncio.to_thread(_count_runs, settings) == 0
        finally:
            await asyncio.to_thread(proxy.close)
