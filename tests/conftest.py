"""Loaded before any test: what must be set before NumPy and gRPC are imported."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from dcfpca.wire import require_tls_1_3

require_tls_1_3()

# A deadline would make a claim about this machine's load, not about the code: timings belong into benchmarks.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# The matrices of tests are small: a second BLAS thread only spins, in this process and in those that tests start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


# The modules of the first take longest, those of the last least.
TIERS = ("acceptance", "integration", "simulation", "property", "unit")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long modules first: side by side, no process is left to finish one alone while the others have nothing to do."""
    tests = Path(__file__).parent
    items.sort(key=lambda item: TIERS.index(item.path.relative_to(tests).parts[0]))


@pytest.fixture(autouse=True)
def same_log_handlers() -> Iterator[None]:
    """A command that a test runs in this process logs to a stream that ends with the test: its handlers end, too."""
    loggers = logging.getLogger("dcfpca"), logging.getLogger()
    before = [(logger, list(logger.handlers), logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, handlers, propagate, level in before:
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.fixture(scope="session")
def compiled_loops() -> None:
    """The loops in numba's cache, for a test that starts daemons by commands: together they would each compile them."""
    from tests.support.services.compiled_loops import load_compiled_loops  # noqa: PLC0415

    load_compiled_loops()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Any]:
    """A PostgreSQL server, started when the first test wants it."""
    from tests.support.services.postgresql import postgresql_server  # noqa: PLC0415  imports what most tests do not need

    with postgresql_server() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def open_store(request: pytest.FixtureRequest) -> Any:
    """Opens the store of a path: once in SQLite, once in PostgreSQL."""
    from aggregator.store.store import Store  # noqa: PLC0415
    from tests.support.services.postgresql import INSTALLED  # noqa: PLC0415
    from tests.support.services.stores import PostgresStores  # noqa: PLC0415

    if request.param == "sqlite":
        return Store
    if not INSTALLED:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    return PostgresStores(request.getfixturevalue("postgresql"))
