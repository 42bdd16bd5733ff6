"""A real PostgreSQL server, started for the tests from the system's packages."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
needs_postgresql = pytest.mark.skipif(
    not INSTALLED, reason="PostgreSQL is not installed (Debian: apt install postgresql)"
)


@dataclass(frozen=True)
class Server:
    """A server on a socket of its own."""

    base: Path

    def url(self, database: str = "postgres", scheme: str = "postgresql") -> str:
        """A URL with a password, which the server does not ask for."""
        return f"{scheme}://site:s3cret@/{database}?host={self.base}"

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
    command = [str(INSTALLED[-1]), "-D", str(base / "data"), "-w", "-l", str(base / "log")]
    _run([*command, "initdb", "-o", "-A trust -U site --no-sync"], user)
    try:
        _run([*command, "-o", f"-k {base} -c listen_addresses='' -c fsync=off", "start"], user)
        yield Server(base)
    finally:
        subprocess.run(_as(user, [*command, "-m", "immediate", "stop"]), check=False, capture_output=True)
        shutil.rmtree(base, ignore_errors=True)


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
