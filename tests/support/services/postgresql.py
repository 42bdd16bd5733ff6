"""A real PostgreSQL server, started for the tests from the system's packages."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from dcfpca.scaffold.local_consortium import free_ports

INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
needs_postgresql = pytest.mark.skipif(
    not INSTALLED, reason="PostgreSQL is not installed (Debian: apt install postgresql)"
)


@dataclass(frozen=True)
class Server:
    """A server on a socket and a port of its own."""

    base: Path
    port: int

    def url(self, database: str = "postgres", scheme: str = "postgresql") -> str:
        """A URL with a password, which the server does not ask for."""
        return f"{scheme}://site:s3cret@/{database}?host={self.base}&port={self.port}"

    def by_way_of(self, address: str, url: str) -> str:
        """The same database over TCP by way of a proxy at this address."""
        return f"postgresql://site:s3cret@{address}/{url.partition('@/')[2].partition('?')[0]}"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server and to every process that serves a connection."""
        (first, *_) = (self.base / "data" / "postmaster.pid").read_text().split()
        for pid in (first, *Path(f"/proc/{first}/task/{first}/children").read_text().split()):
            os.kill(int(pid), number)

    def restart(self) -> None:
        """At once, as after a crash."""
        _run([*_control(self.base), "-m", "immediate", "restart"], _owner(self.base))

    def new_database(self) -> str:
        """The URL of an empty database."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            (count,) = connection.execute("SELECT count(*) FROM pg_database").fetchone() or (0,)
            name = f"store{count}"
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)


@contextmanager
def postgresql_server() -> Iterator[Server]:
    """A running server; as root it runs as another user, because it refuses to be root."""
    base = Path(tempfile.mkdtemp(prefix="dcfpca-pg-"))
    user = _owner(base)
    command, (port,) = _control(base), free_ports(1)
    _run([*command, "initdb", "-o", "-A trust -U site --no-sync"], user)
    try:
        _run([*command, "-o", f"-k {base} -p {port} -c listen_addresses=127.0.0.1 -c fsync=off", "start"], user)
        yield Server(base, port)
    finally:
        subprocess.run(_as(user, [*command, "-m", "immediate", "stop"]), check=False, capture_output=True)
        shutil.rmtree(base, ignore_errors=True)


def _control(base: Path) -> list[str]:
    return [str(INSTALLED[-1]), "-D", str(base / "data"), "-w", "-l", str(base / "log")]


def _owner(base: Path) -> str:
    if os.getuid() != 0:
        return ""
    who = pwd.getpwnam("postgres")
    os.chown(base, who.pw_uid, who.pw_gid)
    return who.pw_name


def _as(user: str, command: list[str]) -> list[str]:
    return ["runuser", "-u", user, "--", *command] if user else command


def _run(command: list[str], user: str) -> None:
    done = subprocess.run(_as(user, command), capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
