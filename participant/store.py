"""What survives a killed daemon: consents, seeds, what came in, the last local step, and the ledger.

One SQLite file and one array file per run, in a directory that only its owner enters and only one daemon uses.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput, Refused, UnusableState
from dcfpca.rpca.method import FloatArray
from dcfpca.spec import parse_spec
from participant.array_file import read_arrays, write_arrays
from participant.atomic_files import make_private, settle, sync_file, write_whole
from participant.ledger import Ledger
from participant.session import Consent
from participant.session.events import Ref

VERSION = 1
DATABASE = "state.db"


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as the site remembers it."""

    run_id: str
    spec: bytes = field(repr=False)
    digest: bytes
    status: str
    reasons: tuple[str, ...]
    private: bool
    approved: bool
    proposed_ms: int
    outcome: str

    @property
    def consent(self) -> Consent | None:
        """The answer that the site gave; None while it waits for approval."""
        if self.status == "waiting":
            return None
        return Consent(parse_spec(self.spec), self.digest, self.status != "refused", self.reasons, self.private)


@dataclass(frozen=True, slots=True, eq=False)
class LocalStep:
    """The outcome of a local step: the update, and the state from which the site goes on."""

    round: int
    consensus: bytes
    vector: FloatArray = field(repr=False)
    snapshot: Mapping[str, NDArray[np.generic]] = field(repr=False)


class Store:
    """The site's memory. Methods that write are durable against a killed process when they return."""

    def __init__(self, directory: Path) -> None:
        make_private(directory)
        self.directory = directory
        self._database = _open(directory / DATABASE)
        self.ledger = Ledger(self._database)
        self._flushed: dict[str, str] = {}

    def take_over(self) -> None:
        """Called by the daemon, once it is known to be the only one."""
        self._spend_after_power_cut()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def runs(self) -> list[RunRow]:
        """All runs, oldest first."""
        return [_run_row(row) for row in self._database.execute("SELECT * FROM runs ORDER BY proposed_ms, run_id")]

    def run(self, run_id: str) -> RunRow | None:
        """One run."""
        row = self._database.execute("SELECT * FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return _run_row(row) if row else None

    def save_waiting(self, run_id: str, spec: bytes, digest: bytes, private: bool, at_ms: int) -> None:
        """A run waits for a person at the site."""
        with self._database as database:
            insert = "INSERT OR IGNORE INTO runs (run_id, spec, digest, status, private, proposed_ms)"
            database.execute(f"{insert} VALUES (?, ?, ?, 'waiting', ?, ?)", (run_id, spec, digest, private, at_ms))

    def save_consent(self, run_id: str, consent: Consent, at_ms: int) -> None:
        """The site's answer, before it is sent."""
        status, reasons = "enrolled" if consent.accept else "refused", json.dumps(consent.reasons)
        values = (run_id, consent.spec.canonical(), consent.digest, status, reasons, consent.private, at_ms)
        with self._database as database:
            database.execute(
                "INSERT INTO runs (run_id, spec, digest, status, reasons, private, proposed_ms)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE"
                " SET status = excluded.status, reasons = excluded.reasons, private = excluded.private",
                values,
            )

    def approve(self, run_id: str) -> None:
        """A person at the site agreed."""
        with self._database as database:
            database.execute("UPDATE runs SET approved = 1 WHERE run_id = ?", (run_id,))

    def approved(self) -> list[str]:
        """Runs that were agreed to and not answered yet."""
        rows = self._database.execute("SELECT run_id FROM runs WHERE status = 'waiting' AND approved = 1")
        return [row[0] for row in rows]

    def open_attempt(self, run_id: str, ref: Ref, seed: bytes, body: bytes, before: tuple[str, ...] = ()) -> None:
        """A new attempt: its seed, the message that opened it, and for whom the round's sum was `before` opened.

        The attempt before is over, and its seed wiped.
        """
        with self._database as database:
            self._wipe(run_id)
            values = (run_id, ref.round, ref.attempt, seed, json.dumps(before))
            database.execute(
                "INSERT INTO seeds (run_id, round, attempt, seed, opened_before) VALUES (?, ?, ?, ?, ?)", values
            )
            database.execute("INSERT INTO inbox (run_id, body) VALUES (?, ?)", (run_id, body))

    def seed(self, run_id: str) -> tuple[bytes, tuple[str, ...]]:
        """The seed of the attempt now open, empty when there is none, and for whom the round was opened before."""
        query = "SELECT seed, opened_before FROM seeds WHERE run_id = ? AND seed IS NOT NULL"
        row = self._database.execute(query, (run_id,)).fetchone()
        return (row[0], tuple(json.loads(row[1]))) if row else (b"", ())

    def had_seed(self, run_id: str, ref: Ref) -> bool:
        """Whether this attempt was given a seed, spent or not."""
        query = "SELECT 1 FROM seeds WHERE run_id = ? AND round = ? AND attempt = ?"
        return self._database.execute(query, (run_id, ref.round, ref.attempt)).fetchone() is not None

    def save_inbox(self, run_id: str, body: bytes) -> None:
        """A message of the attempt now open, before it is answered."""
        with self._database as database:
            database.execute("INSERT INTO inbox (run_id, body) VALUES (?, ?)", (run_id, body))

    def inbox(self, run_id: str) -> list[bytes]:
        """What came in for the attempt now open."""
        query = "SELECT body FROM inbox WHERE run_id = ? ORDER BY position"
        return [row[0] for row in self._database.execute(query, (run_id,))]

    def save_step(self, run_id: str, step: LocalStep) -> int:
        """Write the outcome of a local step beside the one before; returns its checksum. Not for the event loop."""
        arrays = {f"site.{key}": value for key, value in step.snapshot.items()} | {"update": step.vector}
        path = self.directory / _step_file(run_id, step.round)
        return write_whole(path, lambda file: write_arrays(file, arrays))

    def record_step(self, run_id: str, step: LocalStep, checksum: int) -> None:
        """Make the saved step the one to go on from. The last one known to be on the disk stays beside it."""
        name = _step_file(run_id, step.round)
        with self._database as database:
            before = database.execute("SELECT file FROM computed WHERE run_id = ?", (run_id,)).fetchone()
            values = (run_id, step.round, step.consensus, name, checksum)
            database.execute("INSERT OR REPLACE INTO computed VALUES (?, ?, ?, ?, ?)", values)
        if before and before[0] not in (name, self._flushed.get(run_id)):
            (self.directory / before[0]).unlink(missing_ok=True)

    def step(self, run_id: str) -> LocalStep | None:
        """The last local step of a run; None when there is none, or its file is damaged."""
        query = "SELECT round, consensus, file, checksum FROM computed WHERE run_id = ?"
        row = self._database.execute(query, (run_id,)).fetchone()
        if row is None:
            return None
        round, consensus, name, checksum = row
        try:
            arrays = read_arrays(self.directory / name, checksum)
        except BadInput:
            return None
        vector = arrays.pop("update")
        return LocalStep(round, consensus, vector, {key.removeprefix("site."): arrays[key] for key in arrays})

    def end(self, run_id: str, status: str, outcome: str) -> None:
        """The run is over: `finished` or `ended`. Its seeds and local state go."""
        with self._database as database:
            self._wipe(run_id)
            database.execute("DELETE FROM computed WHERE run_id = ?", (run_id,))
            change = "UPDATE runs SET status = ?, outcome = ? WHERE run_id = ? AND status != 'refused'"
            database.execute(change, (status, outcome, run_id))
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.forget_files(run_id)

    def flush(self) -> None:
        """Bring everything to the disk. Has its own connection, so that it may run beside the others' work."""
        with closing(sqlite3.connect(self.directory / DATABASE, timeout=10)) as database:
            saved = dict(database.execute("SELECT run_id, file FROM computed").fetchall())
            if saved != self._flushed:
                for name in saved.values():
                    sync_file(self.directory / name)
                settle(self.directory)
            database.execute("PRAGMA wal_checkpoint(PASSIVE)")
        for run_id, name in self._flushed.items():
            if saved.get(run_id) != name:
                (self.directory / name).unlink(missing_ok=True)
        self._flushed = saved

    def forget_files(self, run_id: str) -> None:
        """Remove the array files of a run."""
        for path in self.directory.glob(f"run-{run_id}-*.step"):
            path.unlink(missing_ok=True)

    def _wipe(self, run_id: str) -> None:
        self._database.execute("UPDATE seeds SET seed = NULL WHERE run_id = ? AND seed IS NOT NULL", (run_id,))
        self._database.execute("DELETE FROM inbox WHERE run_id = ?", (run_id,))

    def _spend_after_power_cut(self) -> None:
        """Sit out the attempts that were open when the machine went down.

        Commits survive a killed process at once, but a power cut only after the next flush. What was sent in between
        is not known any more, so no seed from before may be used again: a second update under one mask opens both.
        """
        boot = _boot_id()
        row = self._database.execute("SELECT boot_id FROM boot").fetchone()
        with self._database as database:
            if row is not None and (not boot or row[0] != boot):
                database.execute("UPDATE seeds SET seed = NULL")
                database.execute("DELETE FROM inbox")
            database.execute("INSERT OR REPLACE INTO boot VALUES (1, ?)", (boot,))


@contextmanager
def only_daemon(directory: Path) -> Iterator[None]:
    """Hold the state directory; a second daemon on it is refused."""
    make_private(directory)
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        hint = "stop the other daemon, or give this one its own [state] dir"
        raise Refused(f"another participant daemon uses the state directory {directory}", hint) from None
    try:
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> sqlite3.Connection:
    try:
        database = sqlite3.connect(path, timeout=10, check_same_thread=False)
        path.chmod(0o600)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA secure_delete = ON")
        _check_version(path, database)
        database.executescript(package_files("participant").joinpath("schema.sql").read_text(encoding="utf-8"))
    except sqlite3.Error as error:
        hint = "restore it from a backup, or move the directory away; open runs then go on without this site"
        raise UnusableState(f"the state {path} cannot be used: {error}", hint) from None
    return database


def _check_version(path: Path, database: sqlite3.Connection) -> None:
    found = database.execute("PRAGMA user_version").fetchone()[0]
    if found > VERSION:
        sentence = f"the state {path} was written by a newer version (format {found}, this one knows {VERSION})"
        raise UnusableState(sentence, "install the newer version again")
    if found < VERSION:
        database.execute(f"PRAGMA user_version = {VERSION}")


def _run_row(row: tuple[Any, ...]) -> RunRow:
    run, spec, digest, status, why, private, approved, at, outcome = row
    return RunRow(run, spec, digest, status, tuple(json.loads(why)), bool(private), bool(approved), at, outcome)


def _step_file(run_id: str, round: int) -> str:
    return f"run-{run_id}-{round}.step"


def _boot_id() -> str:
    """Differs after every start of the machine; empty where the system does not tell."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="ascii").strip() if path.exists() else ""
