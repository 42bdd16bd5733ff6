"""The store: runs, journal, consensus, participants. Synchronous; one thread uses it at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aggregator.run.events import Event
from aggregator.run.rules import step
from aggregator.run.state import Run
from aggregator.store import opened_sums
from aggregator.store.codec import dump_consensus, dump_event, dump_run, load_consensus, load_event, load_run
from aggregator.store.database import lock, open_database, transaction
from aggregator.store.export_files import ExportFiles
from aggregator.store.opened_sums import StoredSum
from aggregator.store.update_files import UpdateFiles, UpdateKey
from dcfpca.attempt_ref import AttemptRef
from dcfpca.rpca.method import Consensus
from dcfpca.spec import RunSpec, parse_spec, spec_digest


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as the store holds it, its journal replayed; `seq` is the number of its last event."""

    spec: RunSpec
    spec_bytes: bytes
    run: Run
    seq: int
    consensus: Consensus | None


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction: events, the state they lead to, and what they make obsolete."""

    run: Run
    seq: int
    events: Sequence[Event]
    checkpoint: bool = False
    chunks: Sequence[tuple[UpdateKey, int, bytes]] = ()
    consensus: Consensus | None = None
    round_view: tuple[int, bytes] | None = None
    opened_sum: StoredSum | None = None
    discard: Sequence[AttemptRef] = ()


class Store:
    """Everything durable: one database, and beside it the files of open updates and of exports."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.updates = UpdateFiles(path.with_name(f"{path.name}.updates"))
        self.exports = ExportFiles(path)
        self._lock = lock(path)
        try:
            self.connection = open_database(path)
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Close the database, which merges the write-ahead log, and release the lock."""
        self.connection.close()
        os.close(self._lock)

    def create_run(self, run: Run, spec_bytes: bytes, request_id: str, consensus: Consensus) -> None:
        """Store a new run; its request id makes the proposal idempotent."""
        with transaction(self.connection) as db:
            row = (run.run_id, request_id, spec_bytes, run.created_at, dump_run(run))
            db.execute(
                "INSERT INTO runs (run_id, request_id, spec, created_at, state, state_seq) VALUES (?, ?, ?, ?, ?, 0)",
                row,
            )
            body = dump_consensus(consensus)
            db.execute("INSERT INTO consensus (run_id, body) VALUES (?, ?)", (run.run_id, body))

    def run_of_request(self, request_id: str) -> str | None:
        """The run that an earlier proposal with this id created."""
        row = self.connection.execute("SELECT run_id FROM runs WHERE request_id = ?", (request_id,)).fetchone()
        return row[0] if row else None

    def commit(self, commit: Commit) -> None:
        """Make a batch of events durable with everything they lead to.

        Only checkpoints wait for the disk. A power cut in the middle of a round takes the aggregator back to the
        opening of that attempt, where the participants repeat their messages or the round is reopened: nothing is lost,
        and no masks are opened twice.
        """
        run_id = commit.run.run_id
        first = commit.seq - len(commit.events) + 1
        for chunk in commit.chunks:
            self.updates.add(*chunk)
        with transaction(self.connection, wait_for_disk=commit.checkpoint) as db:
            if commit.checkpoint:
                db.execute("DELETE FROM events WHERE run_id = ?", (run_id,))
                state = (dump_run(commit.run), commit.seq, run_id)
                db.execute("UPDATE runs SET state = ?, state_seq = ? WHERE run_id = ?", state)
            else:
                rows = [(run_id, first + index, dump_event(event)) for index, event in enumerate(commit.events)]
                db.executemany("INSERT OR REPLACE INTO events (run_id, seq, body) VALUES (?, ?, ?)", rows)
            if commit.consensus:
                body = dump_consensus(commit.consensus)
                db.execute("UPDATE consensus SET body = ? WHERE run_id = ?", (body, run_id))
            if commit.round_view:
                statement = "INSERT OR REPLACE INTO rounds (run_id, round, view) VALUES (?, ?, ?)"
                db.execute(statement, (run_id, *commit.round_view))
            if commit.opened_sum:
                opened_sums.keep(db, run_id, commit.opened_sum)
        for ref in commit.discard:
            self.updates.discard(ref)

    def load_runs(self) -> list[StoredRun]:
        """Every run, oldest first, with its journal replayed."""
        rows = self.connection.execute(
            "SELECT r.run_id, spec, state, state_seq, body FROM runs r LEFT JOIN consensus c ON c.run_id = r.run_id"
            " ORDER BY created_at"
        ).fetchall()
        return [self._replayed(*row) for row in rows]

    def _replayed(self, run_id: str, spec_bytes: bytes, state: bytes, seq: int, body: bytes | None) -> StoredRun:
        spec, run = parse_spec(spec_bytes), load_run(state, spec_digest(spec_bytes))
        rows = self.connection.execute("SELECT seq, body FROM events WHERE run_id = ? ORDER BY seq", (run_id,))
        for number, event in rows:
            run, _ = step(spec, run, load_event(event, run_id))
            seq = number
        return StoredRun(spec, spec_bytes, run, seq, load_consensus(body) if body else None)

    def round_views(self, run_id: str, after: int = -1) -> list[bytes]:
        """Finished rounds after this one, oldest first."""
        rows = self.connection.execute(
            "SELECT view FROM rounds WHERE run_id = ? AND round > ? ORDER BY round", (run_id, after)
        )
        return [view for (view,) in rows]

    def check_writable(self) -> None:
        """Raise StoreFailed or BadInput when a transaction fails."""
        with transaction(self.connection) as db:
            db.execute(f"PRAGMA user_version = {db.execute('PRAGMA user_version').fetchone()[0]}")
