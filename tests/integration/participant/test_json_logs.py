"""Every line that a daemon logs is JSON if it is told so: gRPC's C core, which has a format of its own, is silent."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import ssl
import struct
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from dcfpca.scaffold.local_consortium import free_ports
from tests.support.services.federation import Federation
from tests.support.services.processes import Process
from tests.support.surroundings.proxy import Proxy

NAMES = ("alpha", "beta", "gamma")
SPEC: dict[str, Any] = {
    "rank": 1,
    "rounds": 1000,
    "tolerance": 0.0,
    "closing_rounds": False,
    "participants": NAMES,
}
ENHANCE_YOUR_CALM = 11  # the error code of HTTP/2
# The library complains of a handshake that fails, on either side of the connection.
DIALLING = """
import typer
from dcfpca.text.command_runner import run_command
app = typer.Typer()

@app.command()
def dial(address: str):
    import grpc
    with grpc.secure_channel(address, grpc.ssl_channel_credentials()) as channel:
        try:
            channel.unary_unary("/dcfpca.v1.RoundService/Respond", None, None)(b"", timeout=10)
        except grpc.RpcError as error:
            print(error.code().name)

run_command(app)
"""


def test_daemons_whose_connections_fail_log_nothing_but_json(tmp_path: Path) -> None:
    with Federation(tmp_path, fresh=True) as federation:
        aggregator = federation.start_aggregator()
        federation.add_site("alpha", np.random.default_rng(0).standard_normal((6, 40)))
        site = federation.start_site("alpha")
        site.await_action("connected")
        host, _, port = federation.address.partition(":")
        with socket.create_connection((host, int(port))) as peer:
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
            peer.recv(1)
        found = dialled(federation.address)
        assert (found.stdout, found.stderr) == ("UNAVAILABLE\n", "")
        aggregator.stop()
        site.await_action("unreachable")
        site.stop()
        for process in (aggregator, site):
            assert_json(process)


def test_a_site_whose_aggregator_hangs_up_on_it_with_a_goaway_logs_nothing_but_json(tmp_path: Path) -> None:
    with Federation(tmp_path, fresh=True) as federation, socket.create_server(("127.0.0.1", 0)) as listener:
        federation.address = f"127.0.0.1:{listener.getsockname()[1]}"
        federation.add_site("alpha", np.random.default_rng(0).standard_normal((6, 40)))
        site = federation.start_site("alpha")
        assert any(hang_up(federation, listener) for _ in range(3)), "the site sent no preface of HTTP/2"
        site.await_action("unreachable")
        site.stop()
        assert_json(site)


def test_daemons_whose_connections_are_cut_in_the_middle_of_a_run_log_nothing_but_json(tmp_path: Path) -> None:
    with Federation(tmp_path, fresh=True) as federation:
        aggregator = federation.start_aggregator()
        console = free_ports(1)[0]
        with closing(Proxy(federation.address)) as proxy:
            for name in NAMES:
                tables = {"console": {"listen": f"127.0.0.1:{console}"}} if name == "alpha" else {}
                data = np.random.default_rng(0).standard_normal((6, 40))
                federation.add_site(name, data, via=proxy.address, tables=tables)
            federation.start_sites(NAMES)
            run_id = federation.propose(**SPEC)
            for round in (3, 6):
                aggregator.await_action("consensus_reached", run=run_id, round=round)
                seen = len(aggregator.lines)
                proxy.cut()
                aggregator.await_action("participant_disconnected", after=seen)
                proxy.heal()
            with socket.create_connection(("127.0.0.1", console)) as peer:
                peer.sendall(b"GET \0 HTTP/9\r\n\r\n")
                assert b"400" in peer.recv(100)
            aggregator.await_action("consensus_reached", run=run_id, round=9)
            aggregator.kill()
            aggregator_again = federation.start_aggregator()
            aggregator_again.await_action("consensus_reached", run=run_id, round=12)
            federation.operator.abort(run_id, "seen enough")
            sites = [federation.processes[name] for name in NAMES]
            for process in (*sites, aggregator_again):
                process.stop()
        for process in (*sites, aggregator, aggregator_again):
            assert_json(process)


def test_a_daemon_that_cannot_start_says_so_in_json(tmp_path: Path) -> None:
    """The state of a newer site, and a store that is no database."""
    with Federation(tmp_path, fresh=True) as federation:
        federation.add_site("alpha", np.zeros((6, 40)))
        state = tmp_path / "sites" / "alpha" / "state"
        state.mkdir(mode=0o700)
        for file, version in ((state / "state.db", 999), (tmp_path / "store.db", 999)):
            with closing(sqlite3.connect(file)) as newer:
                newer.execute(f"PRAGMA user_version = {version}")
        site = federation.start_site("alpha")
        aggregator = federation._start("agg", "aggregator.main", federation.aggregator_config())
        for process in (site, aggregator):
            assert process.wait() == 1
            assert_json(process)
            ended = next(line for line in process.events() if line["action"] == "ended")
            assert "written by a newer version" in ended["reason"]
            assert ended["hint"]


def hang_up(federation: Federation, listener: socket.socket) -> bool:
    """Take one connection as the aggregator, and end it with the GOAWAY of which gRPC complains loudest."""
    files = federation.files["agg"]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.ca)
    context.load_cert_chain(files.certificate, files.key)
    context.set_alpn_protocols(["h2"])
    context.verify_mode = ssl.CERT_REQUIRED
    listener.settimeout(20)
    taken, _ = listener.accept()
    try:
        with context.wrap_socket(taken, server_side=True) as peer:
            preface = peer.recv(24)
            reason = b"too_many_pings"
            settings, goaway = _frame(4, b""), _frame(7, struct.pack(">II", 0, ENHANCE_YOUR_CALM) + reason)
            peer.sendall(settings + goaway)
            peer.settimeout(1.0)
            with suppress(TimeoutError):  # read by then, whether or not it has answered
                while peer.recv(4096):
                    pass
            return preface.startswith(b"PRI * HTTP/2")
    except OSError:  # a connection that only tries whether somebody listens
        return False


def _frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, 0]) + struct.pack(">I", 0) + payload


def dialled(address: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    command = [sys.executable, "-c", DIALLING, address]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def assert_json(process: Process) -> None:
    assert process.lines
    for line in process.lines:
        assert "action" in json.loads(line), line
