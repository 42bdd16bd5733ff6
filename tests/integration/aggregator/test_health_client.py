"""The health command, asked of a real aggregator over mutual TLS."""

from __future__ import annotations

import asyncio
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aggregator.config import Config, load_config
from aggregator.rpc.health_client import probe
from dcfpca.errors import Unreachable
from dcfpca.identity import Role
from dcfpca.pki.ca_directory import create_authority
from dcfpca.pki.credential_files import issue_credentials

SECONDS = 60


def _config(directory: Path) -> Config:
    now = datetime.now(UTC)
    authority = create_authority(directory / "ca", "acme", now)
    # A name that does not resolve here: the probe dials loopback whatever sites dial.
    issue_credentials(authority, Role.AGGREGATOR, "agg", directory, now=now, hosts=["agg.acme.example"], days=1)
    path = directory / "aggregator.toml"
    path.write_text(
        '[server]\nlisten = "0.0.0.0:0"\nca = "ca.crt"\ncert = "agg.crt"\nkey = "agg.key"\n'
        '[store]\npath = "store.db"\n[telemetry]\nready_file = "ready"\nmetrics = ""\n[dashboard]\nlisten = ""\n'
    )
    return load_config(path)


async def _serving(directory: Path) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aggregator.main", "serve", "--config", str(directory / "aggregator.toml")),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr
    async with asyncio.timeout(SECONDS):
        while line := await process.stderr.readline():
            if b"action=serving" in line:
                return process
    raise AssertionError("the aggregator ended before it served")


async def test_the_probe_passes_exactly_while_the_aggregator_serves_and_sigterm_drains_with_status_0(
    tmp_path: Path,
) -> None:
    config = _config(tmp_path)
    process = await _serving(tmp_path)
    try:
        said = await asyncio.to_thread(probe, config)
        assert re.fullmatch(r"127\.0\.0\.1:\d+ is serving, and its certificate lasts [01] more days", said)
        process.terminate()
        _, err = await asyncio.wait_for(process.communicate(), SECONDS)
        assert process.returncode == 0, err
    finally:
        if process.returncode is None:
            process.kill()
    with pytest.raises(Unreachable, match="does not answer"):
        await asyncio.to_thread(probe, config, 2)
