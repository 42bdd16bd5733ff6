"""Every line that a daemon logs is JSON if it is told so: gRPC's C core, which has a format of its own, is silent."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.support.federation import Federation
from tests.support.processes import Process

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


def dialled(address: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    command = [sys.executable, "-c", DIALLING, address]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def assert_json(process: Process) -> None:
    assert process.lines
    for line in process.lines:
        assert "action" in json.loads(line), line
