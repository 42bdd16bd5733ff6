"""kill -9 in the middle of an export, of the site that sends and of the operator's command that writes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.support.services.federation import Federation
from tests.support.surroundings.proxy import Proxy

pytestmark = pytest.mark.slow

NAMES = ("alpha", "beta", "gamma")
ROWS, COLUMNS = 100, 6000
SIZE = ROWS * COLUMNS * 8  # of L.npy at alpha
SPEC = {"rank": 2, "rounds": 3, "tolerance": 0.0, "closing_rounds": False, "export": True, "participants": NAMES}


@pytest.fixture
def proxy_and_federation(tmp_path: Path) -> Iterator[tuple[Proxy, Federation]]:
    draw = np.random.default_rng(7)
    with Federation(tmp_path) as federation:
        federation.start_aggregator()
        with closing(Proxy(federation.address, stall_after=SIZE // 2)) as proxy:
            for name in NAMES:
                columns = COLUMNS if name == "alpha" else 30
                data = draw.standard_normal((ROWS, 2)) @ draw.standard_normal((2, columns))
                federation.add_site(name, data, via=proxy.address if name == "alpha" else "", allow_export=True)
            federation.start_sites(NAMES)
            yield proxy, federation


def test_a_site_killed_while_it_exports_and_an_operator_killed_while_it_writes_lose_nothing(
    proxy_and_federation: tuple[Proxy, Federation], tmp_path: Path
) -> None:
    proxy, federation = proxy_and_federation
    run_id = federation.run(**SPEC).run_id
    written = federation.result("alpha", run_id)
    federation.operator.request_export(run_id)
    assert proxy.stalled.wait(60), "half of L is under way"
    federation.processes["alpha"].kill()
    proxy.cut()
    assert "alpha" in federation.operator.export(run_id).awaited
    proxy.heal()
    federation.start_site("alpha")
    federation.processes["alpha"].await_action("reconstruction_exported", run=run_id)
    (sent,) = [
        one for one in federation.operator.export(run_id).files if (one.participant, one.artifact) == ("alpha", "L.npy")
    ]
    whole = (federation.root / "sites" / "alpha" / "results" / run_id / "L.npy").read_bytes()
    assert sent.sha256 == hashlib.sha256(whole).digest()
    np.testing.assert_array_equal(
        np.load(federation.root / "sites" / "alpha" / "results" / run_id / "L.npy"), written.L
    )
    check_operator_killed(federation, run_id, tmp_path, whole)


def check_operator_killed(federation: Federation, run_id: str, root: Path, whole: bytes) -> None:
    """A directory that was being written when the command died is not taken for a result, and the next one is whole."""
    with closing(Proxy(federation.address, delay=0.02)) as slow:
        half, again = root / "half", root / "again"
        command = subprocess.Popen(arguments(federation, run_id, half, slow.address), stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not any(
            path.is_file() and 10**6 < path.stat().st_size < len(whole) for path in root.rglob("*half*/**/*")
        ):
            assert time.monotonic() < end, "never seen in the middle"
            assert command.poll() is None, "over before it was seen in the middle"
            time.sleep(0.01)
        command.kill()
        command.wait()
    assert not (half / "manifest.json").exists()
    done = subprocess.run(
        arguments(federation, run_id, again, federation.address), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (copied,) = again.rglob("alpha/L.npy")
    assert copied.read_bytes() == whole
    assert json.loads((again / "manifest.json").read_text())


def arguments(federation: Federation, run_id: str, out: Path, address: str) -> list[str]:
    files = federation.files["op"]
    keys = ["--ca", str(files.ca), "--cert", str(files.certificate), "--key", str(files.key)]
    command = [sys.executable, "-m", "dcfpca.cli.main", "run", "export", run_id, "--out", str(out)]
    return [*command, "--aggregator", address, *keys]
