"""The store: runs, journal, consensus, participants. Synchronous; one thread uses it at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aggregator.run.events import Event
from aggregator.run.rules import step
from aggregator.run.state import Run
from aggregator.store.codec import dump_consensus, dump_event, dump_run, load_consensus, load_event, load_run
from aggregator.store.database import lock, open_database, transaction
from aggregator.store.update_files import Spool, UploadKey
from dcfpca.rpca.method import Consensus
from dcfpca.spec import RunSpec, parse_spec


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as it was when the store was last written."""

    spec: RunSpec
    spec_bytes: bytes
    run: Run
    seq: int
    consensus: Consensus | None


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction: what happened, what it led to, and what it made superfluous."""

    run: Run
    seq: int
    events: Sequence[Event]
    checkpoint: bool = False
    chunks: Sequence[tuple[UploadKey, int, bytes]] = ()
    consensus: Consensus | None = None
    round_view: tuple[int, bytes] | None = None
    discard: Sequence[tuple[int, int]] = ()


class Store:
    """Everything durable: one database, and beside it the updates of the rounds now open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spool = Spool(path.with_name(f"{path.name}.updates"))
        self._lock = lock(path)
        try:
            self.connection = open_database(path)
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Give the file back; the write-ahead log is folded in."""
        self.connection.close()
        os.close(self._lock)

    def create_run(self, run: Run, spec_bytes: bytes, request_id: str, consensus: Consensus) -> None:
        """Keep a new run; its request id makes the proposal idempotent."""
        with transaction(self.connection) as db:
            row = (run.run_id, request_id, spec_bytes, run.created_at, dump_run(run))
            db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, 0)", row)
            db.execute("INSERT INTO consensus VALUES (?, ?)", (run.run_id, dump_consensus(consensus)))

    def run_of_request(self, request_id: str) -> str | None:
        """The run that an earlier proposal with this id made."""
        row = self.connection.execute("SELECT run_id FROM runs WHERE request_id = ?", (request_id,)).fetchone()
        return row[0] if row else None

    def commit(self, commit: Commit) -> None:
        """Make a batch of events durable with everything that goes with them.

        Only turns of the run wait for the disk. A power cut in the middle of a round takes the aggregator back to the
        opening of that attempt, where the participants repeat what they said, or the round is reopened: nothing is
        lost, and no masks are opened twice.
        """
        run_id = commit.run.run_id
        first = commit.seq - len(commit.events) + 1
        for piece in commit.chunks:
            self.spool.add(*piece)
        with transaction(self.connection, wait_for_disk=commit.checkpoint) as db:
            if commit.checkpoint:
                db.execute("DELETE FROM events WHERE run_id = ?", (run_id,))
                state = (dump_run(commit.run), commit.seq, run_id)
                db.execute("UPDATE runs SET state = ?, state_seq = ? WHERE run_id = ?", state)
            else:
                rows = [(run_id, first + index, dump_event(event)) for index, event in enumerate(commit.events)]
                db.executemany("INSERT OR REPLACE INTO events VALUES (?, ?, ?)", rows)
            if commit.consensus:
                body = dump_consensus(commit.consensus)
                db.execute("UPDATE consensus SET body = ? WHERE run_id = ?", (body, run_id))
            if commit.round_view:
                db.execute("INSERT OR REPLACE INTO rounds VALUES (?, ?, ?)", (run_id, *commit.round_view))
        for gone in commit.discard:
            self.spool.discard(run_id, *gone)

    def load_runs(self) -> list[StoredRun]:
        """Every run, oldest first, with its journal replayed."""
        rows = self.connection.execute(
            "SELECT r.run_id, spec, state, state_seq, body FROM runs r LEFT JOIN consensus c ON c.run_id = r.run_id"
            " ORDER BY created_at"
        ).fetchall()
        return [self._replayed(*row) for row in rows]

    def _replayed(self, run_id: str, spec_bytes: bytes, state: bytes, seq: int, body: bytes | None) -> StoredRun:
        spec, run = parse_spec(spec_bytes), load_run(state)
        rows = self.connection.execute("SELECT seq, body FROM events WHERE run_id = ? ORDER BY seq", (run_id,))
        for number, event in rows:
            run, _ = step(spec, run, load_event(event))
            seq = number
        return StoredRun(spec, spec_bytes, run, seq, load_consensus(body) if body else None)

    def round_views(self, run_id: str, after: int = -1) -> list[bytes]:
        """Finished rounds after this one, oldest first."""
        rows = self.connection.execute(
            "SELECT view FROM rounds WHERE run_id = ? AND round > ? ORDER BY round", (run_id, after)
        )
        return [view for (view,) in rows]

    def check_writable(self) -> None:
        """Raise StoreFailed or BadInput when a transaction cannot be made."""
        with transaction(self.connection) as db:
            db.execute(f"PRAGMA user_version = {db.execute('PRAGMA user_version').fetchone()[0]}")
