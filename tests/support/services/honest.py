"""Real participant daemons inside the test's event loop, for tests in which the aggregator is inside it too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import numpy as np

from dcfpca.identity import Role
from dcfpca.rpca.method import FloatArray
from participant.config import load_config
from participant.daemon import Daemon
from participant.local_site import open_site
from participant.state.store import Store
from tests.support.services.federation import to_toml
from tests.support.services.service import Service


@asynccontextmanager
async def honest_sites(service: Service, data: Mapping[str, FloatArray]) -> AsyncIterator[dict[str, Store]]:
    """Daemons with this data, connected; their stores by name."""
    tasks, stores = [], {}
    for name, matrix in data.items():
        home = service.root / f"site-{name}"
        home.mkdir()
        np.save(home / "data.npy", matrix)
        files = service.identity(Role.PARTICIPANT, name)
        (home / "participant.toml").write_text(
            to_toml(
                {
                    "aggregator": {"address": f"127.0.0.1:{service.port}"},
                    "identity": {"ca": str(files.ca), "cert": str(files.certificate), "key": str(files.key)},
                    "data": {"path": "data.npy"},
                    "policy": {"allow_plain": True, "min_cohort": 2, "min_columns": 2},
                    "state": {"dir": "state"},
                    "results": {"dir": "results"},
                    "engine": {"threads": 1},
                }
            )
        )
        config = load_config(home / "participant.toml")
        stores[name] = Store(config.state.dir)
        tasks.append(asyncio.create_task(Daemon(config, open_site(config), stores[name]).serve()))
    try:
        while not service.run_registry.directory.connected() >= data.keys():
            await service.run_registry.stage.wait(service.run_registry.stage.version)
        yield stores
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for store in stores.values():
            store.close()
