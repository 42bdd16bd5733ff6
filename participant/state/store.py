"""The site's durable state: consents, keys, received assignments, the last local step, and the ledger.

One SQLite file, and for each open run an array file and a key record, in a directory that only its owner may enter and
only one daemon uses.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dcfpca.atomic_files import make_private_directory
from dcfpca.errors import UnusableState
from dcfpca.method_memory import snapshot_format
from dcfpca.privacy.noise_stream import KEY_BYTES
from dcfpca.secagg.column_sets import ColumnSet
from dcfpca.secagg.differencing_check import PastRun
from dcfpca.secagg.errors import LostState
from dcfpca.spec import parse_kept_spec
from participant.policy import ABOUT_DATA
from participant.session import Consent
from participant.session.events import LocalStep
from participant.state.approvals import Approvals
from participant.state.column_sets import ColumnSets
from participant.state.database import DATABASE, open_database
from participant.state.directory import is_disk_full
from participant.state.key_record import KeyRecord, forget_record, key_file, noise_file, read_slots
from participant.state.ledger import NO_PRIVACY, PRIVACY_CHARGE, RESULT, Item, Ledger
from participant.state.privacy_budget import PrivacyBudget, PrivacyRecord, Unit
from participant.state.step_files import StepFiles

_SELECT = (
    "SELECT run_id, spec, digest, status, reasons, private, approved, proposed_ms, outcome, cohort"
    " FROM runs WHERE ? IN ('', run_id) ORDER BY proposed_ms, run_id"
)

DAY_MS = 86_400_000
_EXPOSED = "SELECT run_id, cohort, data FROM exposed_cohorts ORDER BY rowid"
_PAST = (
    "SELECT runs.run_id, spec, status, approved, cohort, coalesce(joined.sha256, x''), EXISTS (SELECT 1 FROM ledger AS"
    " sent WHERE sent.run_id = joined.run_id AND sent.kind LIKE '% update') FROM runs LEFT JOIN ledger AS joined"
    " ON joined.run_id = runs.run_id AND joined.kind IN (?, ?) WHERE runs.run_id != ? ORDER BY proposed_ms, runs.run_id"
)


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as stored."""

    run_id: str
    spec: bytes = field(repr=False)
    digest: bytes
    status: str
    reasons: tuple[str, ...]
    private: bool
    approved: bool
    proposed_ms: int
    outcome: str
    cohort: tuple[str, ...] = ()

    @property
    def consent(self) -> Consent | None:
        """The answer that the site gave; None while the run waits for approval."""
        if self.status == "waiting":
            return None
        accept = self.status != "refused"
        return Consent(parse_kept_spec(self.spec), self.digest, accept, () if accept else self.reasons, self.private)

    @property
    def asks(self) -> bool:
        """Whether a person is asked: before the site enrols, or within a run, for the reasons that it then has."""
        return self.status == "waiting" or (self.status == "enrolled" and bool(self.reasons))


class Store:
    """The site's state. What a method writes survives a killed process once the method returns.

    It survives a power cut only after `flush`; but what a secure run pins (`save_keys`, and steps saved as durable) is
    on the disk at once.
    """

    def __init__(self, directory: Path, results: Path | None = None) -> None:
        """`results` is the directory with the second record of what runs have spent of the privacy budget."""
        make_private_directory(directory)
        self.directory = directory
        self._database = open_database(directory / DATABASE)
        self.ledger = Ledger(self._database)
        self.approvals = Approvals(self._database, self.ledger)
        record = None if results is None else PrivacyRecord(results)
        self.column_sets = ColumnSets(directory)
        self.privacy = PrivacyBudget(self._database, self.ledger, self.column_sets, record)
        self.steps = StepFiles(directory)
        self._keys: dict[str, KeyRecord] = {}
        self.exposed: set[str] = set()
        """Runs of which `save_exposure` is done: in a run neither the data nor the cohort changes."""
        self._failure: Exception | None = None
        self._failed = asyncio.Event()

    def note(self, error: Exception) -> None:
        """Take note of an error that ended some work: if the disk is full, `until_failed` returns."""
        if is_disk_full(error, self.directory):
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Report that a decision could not be saved: `until_failed` returns, and the daemon restarts from the disk."""
        full = is_disk_full(error, self.directory)
        self._failure = self._failure or (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if full else error)
        self._failed.set()

    async def until_failed(self) -> Exception:
        """Return the error once the state could not be written."""
        await self._failed.wait()
        assert self._failure is not None
        return self._failure

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def runs(self) -> list[RunRow]:
        """All runs, oldest first."""
        return [_run_row(row) for row in self._database.execute(_SELECT, ("",))]

    def run(self, run_id: str) -> RunRow | None:
        """One run; None when it was never proposed to this site."""
        row = self._database.execute(_SELECT, (run_id,)).fetchone()
        return _run_row(row) if row else None

    def save_waiting(self, run_id: str, spec: bytes, digest: bytes, private: bool, at_ms: int, why: str = "") -> None:
        """Save a proposed run that waits for approval by a person at the site, and why that person is asked."""
        insert = "INSERT INTO runs (run_id, spec, digest, status, private, proposed_ms, reasons)"
        again = "ON CONFLICT (run_id) DO UPDATE SET reasons = excluded.reasons WHERE status = 'waiting'"
        values = (run_id, spec, digest, private, at_ms, json.dumps([why] if why else []))
        with self._database as database:
            database.execute(f"{insert} VALUES (?, ?, ?, 'waiting', ?, ?, ?) {again}", values)

    def hold(self, run_id: str, why: str) -> None:
        """Save that a run in which the site is enrolled waits for a person, who is told why."""
        with self._database as database:
            values = json.dumps([why]), run_id
            database.execute("UPDATE runs SET reasons = ?, approved = 0 WHERE run_id = ?", values)

    def release(self, run_id: str) -> None:
        """Save that the run waits no longer."""
        with self._database as database:
            database.execute("UPDATE runs SET reasons = '[]' WHERE run_id = ?", (run_id,))

    def save_consent(self, run_id: str, consent: Consent, at_ms: int) -> None:
        """Save the site's answer; called before it is sent."""
        with self._database as database:
            self._put_consent(database, run_id, consent, at_ms)

    def save_joining(self, run_id: str, consent: Consent, columns: ColumnSet, unit: Unit, at_ms: int) -> None:
        """Save that the site joins a run with these columns, and what that spends of the privacy budget, all or none.

        On the disk when this returns, and called before the answer is sent: no power cut forgets what was spent.
        """
        self.column_sets.keep(columns)
        with self._durable() as database:
            self._put_consent(database, run_id, consent, at_ms)
            self.privacy.join(run_id, columns, consent.spec.privacy, unit, at_ms)

    def save_keys(self, run_id: str, cohort: tuple[str, ...], record: bytes) -> None:
        """Save the key record of a run, over the one before, and the cohort; on the disk when this returns.

        The cohort comes last: without it the run has no keys yet, and one that is cut off here makes new ones.
        """
        begins = run_id not in self._keys
        if begins:
            self._keys[run_id] = KeyRecord(key_file(self.directory, run_id))
        self._keys[run_id].write(record)
        if begins and (row := self.run(run_id)) is not None and not row.cohort:
            with self._durable() as database:
                database.execute("UPDATE runs SET cohort = ? WHERE run_id = ?", (json.dumps(cohort), run_id))

    def key_slots(self, run_id: str) -> tuple[bytes, ...]:
        """The slots of the key record of a run; none where it has no record."""
        return read_slots(key_file(self.directory, run_id))

    def make_noise_key(self, run_id: str, key: bytes) -> None:
        """Save the key of the noise of a private run, once, before its keys: a backup has both or neither."""
        # A torn one was never used: the keys of the run are saved after it.
        if self._noise_key(run_id) is None:
            KeyRecord(noise_file(self.directory, run_id)).write(key)

    def noise_key(self, run_id: str) -> bytes:
        """The key of the noise of a private run; LostState where it is gone or torn."""
        if (key := self._noise_key(run_id)) is None:
            sentence = f"the key of the noise of run {run_id} is no longer in this site's state"
            raise LostState(sentence, "finish the run with the consensus it has, or begin a new one")
        return key

    def _noise_key(self, run_id: str) -> bytes | None:
        slots = read_slots(noise_file(self.directory, run_id))
        return slots[0] if slots and slots[0] == slots[1] and len(slots[0]) == KEY_BYTES else None

    def save_opening(self, run_id: str, body: bytes) -> None:
        """Save the announcement of the round now open, in place of the one before."""
        with self._database as database:
            database.execute("DELETE FROM inbox WHERE run_id = ?", (run_id,))
            database.execute("INSERT INTO inbox (run_id, body) VALUES (?, ?)", (run_id, body))

    def forget_opening(self, run_id: str) -> None:
        """Delete the announcement of the last round: the run is over."""
        with self._database as database:
            database.execute("DELETE FROM inbox WHERE run_id = ?", (run_id,))

    def save_exposure(self, data: bytes, run_id: str, cohort: tuple[str, ...]) -> None:
        """Save that a sum over this cohort contains this data; on the disk before the update leaves, as what the run
        was charged is not given back from then on."""
        with self._durable() as database:
            insert = "INSERT OR IGNORE INTO exposed_cohorts (data, run_id, cohort) VALUES (?, ?, ?)"
            database.execute(insert, (data, run_id, json.dumps(cohort)))
        self.privacy.keep(run_id)
        self.exposed.add(run_id)

    def pin_data(self, run_id: str, data: bytes) -> None:
        """Save with which data the run began, once; called before the key of the run is saved."""
        with self._durable() as database:
            database.execute("INSERT OR IGNORE INTO pinned_data (run_id, data) VALUES (?, ?)", (run_id, data))

    def has_other_data(self, run_id: str, data: bytes) -> bool:
        """True if the run began with other data than this."""
        query = "SELECT 1 FROM pinned_data WHERE run_id = ? AND data != ?"
        return self._database.execute(query, (run_id, data)).fetchone() is not None

    def save_result(self, run_id: str, digest: bytes, at_ms: int) -> None:
        """Save the digest of the subspace with which a run ended, as this site has verified it."""
        self.ledger.append(Item(RESULT, "", 0, digest, run_id, detail="verified: it follows from the sums"), at_ms)

    def result_digest(self, run_id: str) -> bytes:
        """The digest of the verified result of a run; empty where there is none."""
        query = "SELECT sha256 FROM ledger WHERE run_id = ? AND kind = ? ORDER BY sequence DESC"
        found = self._database.execute(query, (run_id, RESULT)).fetchone()
        return found[0] if found else b""

    def data_refusals(self, now_ms: int) -> int:
        """How many proposals of the last 24 hours were refused for reasons about the data."""
        query = "SELECT COUNT(*) FROM runs WHERE status = 'refused' AND proposed_ms > ? AND reasons LIKE ?"
        (count,) = self._database.execute(query, (now_ms - DAY_MS, f"%{ABOUT_DATA}%")).fetchone()
        return int(count)

    def past_runs(self, but: str) -> list[PastRun]:
        """The runs, except one, that gave sums or updates, or whose cohort is settled and may yet give some; of those
        with the same members and columns the first.

        Without the latter, two runs that are set up side by side would each find nothing to be compared with. A run
        that a person approved is settled with its spec.
        """
        exposed = {run: (cohort, data) for run, cohort, data in self._database.execute(_EXPOSED)}
        found: dict[tuple[frozenset[str], bytes, bool], str] = {}
        rows = self._database.execute(_PAST, (NO_PRIVACY, PRIVACY_CHARGE, but))
        for run, kept, status, approved, settled, joined, sent in rows:
            spec, data = json.loads(kept), joined
            cohort = json.loads(settled) or (spec["participants"] if approved else ())
            if run in exposed:
                cohort, data = json.loads(exposed[run][0]), exposed[run][1]
            elif not (sent or (status == "enrolled" and cohort)):
                continue
            found.setdefault((frozenset(cohort), data, spec.get("privacy") is not None), run)
        return [PastRun(run, of, self.column_sets.find(data), noisy) for (of, data, noisy), run in found.items()]

    @staticmethod
    def _put_consent(database: sqlite3.Connection, run_id: str, consent: Consent, at_ms: int) -> None:
        status, reasons = "enrolled" if consent.accept else "refused", json.dumps(consent.reasons)
        values = (run_id, consent.spec.canonical(), consent.digest, status, reasons, consent.private, at_ms)
        database.execute(
            "INSERT INTO runs (run_id, spec, digest, status, reasons, private, proposed_ms)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE"
            " SET status = excluded.status, reasons = excluded.reasons, private = excluded.private",
            values,
        )

    @contextmanager
    def _durable(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is on the disk when it is over, power cut or not."""
        self._database.execute("PRAGMA synchronous = FULL")
        try:
            with self._database as database:
                yield database
        finally:
            self._database.execute("PRAGMA synchronous = NORMAL")

    def inbox(self, run_id: str) -> list[bytes]:
        """The saved announcement of the open round, if there is one."""
        query = "SELECT body FROM inbox WHERE run_id = ? ORDER BY position"
        return [row[0] for row in self._database.execute(query, (run_id,))]

    def step(self, run_id: str) -> LocalStep | None:
        """The last local step of a run, memory-mapped; None when there is none, or its file is damaged.

        Raises UnusableState when other software wrote it: the site then sits out until that software runs again.
        """
        if (found := self.steps.latest(run_id)) is not None:
            label, step = found
            self._check_format(run_id, label.format)
            return step
        if self._database.execute("SELECT 1 FROM computed WHERE run_id = ?", (run_id,)).fetchone():
            self._check_format(run_id, "")
        return None

    def _snapshot_format(self, run_id: str) -> str:
        row = self.run(run_id)
        return snapshot_format(parse_kept_spec(row.spec)) if row else ""

    def _check_format(self, run_id: str, found: str) -> None:
        known = self._snapshot_format(run_id)
        if found != known:
            sentence = f"the state of run {run_id} has the format {found or 'of before formats were kept'!r}"
            hint = "install the version that wrote it to go on; else the run goes on without this site"
            raise UnusableState(f"{sentence}, and this software continues {known!r}", hint)

    def end(self, run_id: str, status: str, outcome: str) -> None:
        """Record that the run is `finished` or `ended`, and delete its local state."""
        with self._database as database:
            database.execute("DELETE FROM inbox WHERE run_id = ?", (run_id,))
            database.execute("DELETE FROM computed WHERE run_id = ?", (run_id,))
            change = "UPDATE runs SET status = ?, outcome = ? WHERE run_id = ? AND status != 'refused'"
            database.execute(change, (status, outcome, run_id))
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.steps.forget(run_id)
        forget_record(noise_file(self.directory, run_id))
        if (record := self._keys.pop(run_id, None)) is not None:
            record.sync()
        self.exposed.discard(run_id)

    def flush(self) -> None:
        """Flush everything to the disk. Uses a connection of its own, so that it may run in another thread."""
        self.steps.flush()
        for record in list(self._keys.values()):
            record.sync()
        with closing(sqlite3.connect(self.directory / DATABASE, timeout=10)) as database:
            database.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def remove_leftovers(self) -> None:
        """Remove the files of runs that are over, where a kill or a power cut came before; for the daemon's start."""
        open_runs = {row.run_id for row in self.runs() if row.status in ("waiting", "enrolled")}
        for path in self.directory.glob("run-*.noise"):
            if path.name.removeprefix("run-").removesuffix(".noise") not in open_runs:
                forget_record(path)
        self.steps.forget_all_but(open_runs)

    def forget_openings_after_reboot(self) -> None:
        """Delete the announcements of open rounds if the machine went down; the daemon calls this at its start.

        Commits survive a killed process at once, but a power cut only after the next flush: what is saved may be the
        announcement of an earlier round. The aggregator sends that of the open one again.
        """
        boot = _boot_id()
        row = self._database.execute("SELECT boot_id FROM boot").fetchone()
        with self._database as database:
            if row is not None and (not boot or row[0] != boot):
                database.execute("DELETE FROM inbox")
            database.execute("INSERT OR REPLACE INTO boot (one, boot_id) VALUES (1, ?)", (boot,))


def _run_row(row: tuple[Any, ...]) -> RunRow:
    run, spec, digest, status, why, private, approved, at, outcome, names = row
    reasons, cohort = tuple(json.loads(why)), tuple(json.loads(names))
    return RunRow(run, spec, digest, status, reasons, bool(private), bool(approved), at, outcome, cohort)


def _boot_id() -> str:
    """The kernel's boot identifier; empty where the system has none, which counts as a reboot at every start."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="ascii").strip() if path.exists() else ""
