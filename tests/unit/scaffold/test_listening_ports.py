"""Ports to listen on."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dcfpca.scaffold import local_consortium
from dcfpca.scaffold.local_consortium import free_ports


def test_ports_are_different_and_can_be_listened_on() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_no_port_is_one_that_an_outgoing_connection_may_be_given() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(free_ports(50)) < lowest


@pytest.mark.parametrize("text", ["1024\t65535\n", "20000 60999"])
def test_where_every_port_may_be_given_away_any_free_one_serves(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_consortium, "_OUTGOING_PORTS", tmp_path / "range")
    (tmp_path / "range").write_text(text)
    (port,) = free_ports(1)
    assert port > 0
