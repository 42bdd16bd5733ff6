"""The rows of one run, written with their checksums and read back only if these match.

Opened sums carry none: the members of a cohort, for whom they are kept, verify them themselves.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from aggregator.run.events import Event
from aggregator.run.rules import rules_of, step
from aggregator.run.state import Run, Status
from aggregator.store.codec import (
    dump_consensus,
    dump_event,
    dump_run,
    is_without_secure_sum,
    load_consensus,
    load_event,
    load_run,
)
from aggregator.store.database import row_checksum
from aggregator.store.database_port import Database, Stored
from dcfpca.errors import DcfpcaError, UnusableState
from dcfpca.method_memory import memory_format
from dcfpca.rpca.method import Consensus
from dcfpca.spec import parse_kept_spec, parse_spec, spec_digest
from dcfpca.terms import Terms
from dcfpca.version import __version__

DAMAGED = "damaged"
"""The status of a run whose rows do not match their checksums."""

_INSERT_RUN = (
    "INSERT INTO runs (run_id, request_id, spec, created_at, memory, checksum,"
    " state, state_seq, software, state_checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_CONSENSUS = "INSERT INTO consensus (run_id, body, checksum) VALUES (?, ?, ?)"
_DELETE_EVENTS = "DELETE FROM events WHERE run_id = ?"
_UPDATE_STATE = "UPDATE runs SET state = ?, state_seq = ?, software = ?, state_checksum = ? WHERE run_id = ?"
_UPSERT_EVENT = (
    "INSERT INTO events (run_id, seq, body, checksum) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (run_id, seq) DO UPDATE SET body = excluded.body, checksum = excluded.checksum"
)
_UPDATE_CONSENSUS = "UPDATE consensus SET body = ?, checksum = ? WHERE run_id = ?"
_UPSERT_ROUND = (
    "INSERT INTO rounds (run_id, round, view, checksum) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (run_id, round) DO UPDATE SET view = excluded.view, checksum = excluded.checksum"
)
_SELECT_IDS = "SELECT run_id FROM runs ORDER BY run_id"
_SELECT_RUN = (
    "SELECT request_id, spec, created_at, memory, checksum, state, state_seq, software, state_checksum"
    " FROM runs WHERE run_id = ?"
)
_SELECT_REQUEST = "SELECT run_id FROM runs WHERE request_id = ?"
_SELECT_CONSENSUS = "SELECT body, checksum FROM consensus WHERE run_id = ?"
_SELECT_EVENTS = "SELECT seq, body, checksum FROM events WHERE run_id = ? ORDER BY seq"
_SELECT_ROUNDS = "SELECT round, view, checksum FROM rounds WHERE run_id = ? AND round > ? ORDER BY round"
_DELETIONS = (
    "DELETE FROM opened_sums WHERE run_id = ?",
    _DELETE_EVENTS,
    "DELETE FROM consensus WHERE run_id = ?",
    "DELETE FROM rounds WHERE run_id = ?",
    "DELETE FROM runs WHERE run_id = ?",
)


_MODEL_HINT = "its rounds are shown, and its model is U.npy in the results of every site"

KEPT_ROUNDS = 2
"""A member checks the sum that the open round follows from; the one before is kept for a member that is behind."""

_UPSERT_SUM = (
    "INSERT INTO opened_sums (run_id, round, header, sum) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (run_id, round) DO UPDATE SET header = excluded.header, sum = excluded.sum"
)
_SELECT_SUM_ROUNDS = "SELECT round FROM opened_sums WHERE run_id = ? ORDER BY round"
_MOVE_SUM = "UPDATE opened_sums SET round = ?, header = ?, sum = ? WHERE run_id = ? AND round = ?"
_DELETE_OLD_SUMS = "DELETE FROM opened_sums WHERE run_id = ? AND round <= ?"
_SELECT_SUM = "SELECT header, sum FROM opened_sums WHERE run_id = ? AND round = ?"


@dataclass(frozen=True, slots=True)
class StoredSum:
    """The sum of one round: a serialized `SumHeader`, and the residues that it announces."""

    round: int
    header: bytes = field(repr=False)
    values: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as the store holds it, its journal replayed; `seq` is the number of its last event."""

    terms: Terms
    spec_bytes: bytes
    run: Run
    seq: int
    consensus: Consensus


@dataclass(frozen=True, slots=True)
class HeldRun:
    """A run that is not served, and why: it is damaged, or in a format that this software does not know.

    It stays as it is in the store. `status` is `damaged`, or else that of the run, `paused` if it is not over.
    """

    run_id: str
    status: str
    reason: str
    hint: str
    spec_bytes: bytes = b""
    created_at: float = 0.0
    ended_at: float = 0.0
    enrolled: tuple[str, ...] = ()


def run_ids(db: Database) -> list[str]:
    """Every run, read from the index alone, so that a run whose row is damaged is among them."""
    return [run_id for (run_id,) in db.execute(_SELECT_IDS)]


def insert_run(db: Database, run: Run, spec_bytes: bytes, request_id: str, consensus: Consensus) -> None:
    """Write the rows of a new run."""
    constant = (run.run_id, request_id, spec_bytes, run.created_at, memory_format(parse_spec(spec_bytes)))
    state = (dump_run(run), 0, __version__)
    db.execute(_INSERT_RUN, (*constant, row_checksum(*constant), *state, row_checksum(run.run_id, *state)))
    body = dump_consensus(consensus)
    db.execute(_INSERT_CONSENSUS, (run.run_id, body, row_checksum(run.run_id, body)))


def run_of_request(db: Database, request_id: str) -> str | None:
    """The run that a proposal with this id created."""
    row = db.execute(_SELECT_REQUEST, (request_id,)).fetchone()
    return row[0] if row else None


def update_state(db: Database, run: Run, seq: int) -> None:
    """Write the state after event `seq`, and empty the journal."""
    db.execute(_DELETE_EVENTS, (run.run_id,))
    state = (dump_run(run), seq, __version__)
    db.execute(_UPDATE_STATE, (*state, row_checksum(run.run_id, *state), run.run_id))


def append_events(db: Database, run_id: str, first: int, events: Sequence[Event]) -> None:
    """Write events to the journal, the first with this number."""
    rows = [(run_id, first + index, dump_event(event)) for index, event in enumerate(events)]
    sealed = [(*row, row_checksum(*row)) for row in rows]
    db.executemany(_UPSERT_EVENT, sealed)


def update_consensus(db: Database, run_id: str, consensus: Consensus) -> None:
    """Replace the consensus of a run."""
    body = dump_consensus(consensus)
    db.execute(_UPDATE_CONSENSUS, (body, row_checksum(run_id, body), run_id))


def insert_round(db: Database, run_id: str, round: int, view: bytes) -> None:
    """Write the view of a finished round."""
    row = (run_id, round, view)
    db.execute(_UPSERT_ROUND, (*row, row_checksum(*row)))


def round_views(db: Database, run_id: str, after: int = -1) -> list[bytes]:
    """The views of finished rounds after this one, oldest first; raises UnusableState when one is damaged."""
    rows = db.execute(_SELECT_ROUNDS, (run_id, after)).fetchall()
    for round, view, checksum in rows:
        _verify(f"round {round} of run {run_id}", checksum, run_id, round, view)
    return [view for _, view, _ in rows]


def delete_rows(db: Database, run_id: str) -> None:
    """Delete every row of a run."""
    for statement in _DELETIONS:
        db.execute(statement, (run_id,))


def read_run(db: Database, run_id: str) -> StoredRun | HeldRun:
    """The run with its journal replayed, or why it cannot be served."""
    try:
        spec_bytes, created_at, memory, state, seq, software = _verified_row(db, run_id)
        body, journal = _verified_consensus(db, run_id), _verified_journal(db, run_id, seq)
    except (sqlite3.DatabaseError, UnicodeDecodeError, UnusableState) as error:
        hint = "restore a backup (deploy/RUNBOOK.md), or delete the run (`dcfpca run delete`); the others are served"
        return HeldRun(run_id, DAMAGED, f"its rows in the store are damaged: {error}", hint)
    try:
        stored = _replayed(run_id, spec_bytes, state, seq, body, journal)
    except Exception as error:
        # Every byte is as it was written, so it was written by software that knew what this one does not.
        why = _memory_of_other_software(spec_bytes, memory) or str(error)
        reason = f"it was written by {_named(software)}, and this is {__version__}, which cannot read it: {why}"
        return HeldRun(run_id, Status.PAUSED.value, reason, _other_software_hint(software), spec_bytes, created_at)
    return _with_known_memory(stored, memory, software)


def read_consensus(db: Database, run_id: str) -> Consensus:
    """The consensus of a run; raises UnusableState when it is damaged."""
    return load_consensus(_verified_consensus(db, run_id))


def _verified_row(db: Database, run_id: str) -> tuple[bytes, float, str, bytes, int, str]:
    row = db.execute(_SELECT_RUN, (run_id,)).fetchone()
    if row is None:
        raise UnusableState("the row is missing")
    request_id, spec, created_at, memory, checksum, state, seq, software, state_checksum = row
    _verify("the spec", checksum, run_id, request_id, spec, created_at, memory)
    _verify("the state", state_checksum, run_id, state, seq, software)
    return spec, created_at, memory, state, seq, software


def _verified_consensus(db: Database, run_id: str) -> bytes:
    row = db.execute(_SELECT_CONSENSUS, (run_id,)).fetchone()
    if row is None:
        raise UnusableState("the consensus is missing")
    _verify("the consensus", row[1], run_id, row[0])
    return bytes(row[0])


def _verified_journal(db: Database, run_id: str, seq: int) -> list[tuple[int, bytes]]:
    rows = db.execute(_SELECT_EVENTS, (run_id,)).fetchall()
    for expected, (number, body, checksum) in enumerate(rows, seq + 1):
        _verify(f"event {expected}", checksum, run_id, number, body)
        if number != expected:
            raise UnusableState(f"event {expected} is missing")
    return [(number, body) for number, body, _ in rows]


def _verify(what: str, checksum: int, *values: Stored) -> None:
    if checksum != row_checksum(*values):
        hint = "restore a backup (deploy/RUNBOOK.md), or delete the run"
        raise UnusableState(f"{what} is not what was written", hint)


def _replayed(
    run_id: str, spec_bytes: bytes, state: bytes, seq: int, body: bytes, journal: Sequence[tuple[int, bytes]]
) -> StoredRun:
    terms = Terms.of(parse_kept_spec(spec_bytes))
    if terms.spec.aggregation == "secure" and is_without_secure_sum(state):
        raise UnusableState("its secure rounds go on without members that drop out, which no run does now")
    run, rules = load_run(state, spec_digest(spec_bytes)), rules_of(terms)
    for number, event in journal:
        run, _ = step(rules, run, load_event(event, run_id))
        seq = number
    kept = terms.canonical if spec_bytes == terms.canonical else spec_bytes  # one copy for all runs of a spec
    return StoredRun(terms, kept, run, seq, load_consensus(body))


def _memory_of_other_software(spec_bytes: bytes, memory: str) -> str:
    """The difference between the format of this memory and the one that this software continues; empty for none."""
    with suppress(DcfpcaError):
        if memory != (known := memory_format(parse_kept_spec(spec_bytes))):
            return f"its method's memory has the format {memory or 'of before formats were kept'!r} and not {known!r}"
    return ""


def _with_known_memory(stored: StoredRun, memory: str, software: str) -> StoredRun | HeldRun:
    """The run, unless its method's memory has another format than the one that this software continues."""
    run, difference = stored.run, _memory_of_other_software(stored.spec_bytes, memory)
    if not difference or (not memory and run.status.over):
        return stored
    status, hint = (run.status, _MODEL_HINT) if run.status.over else (Status.PAUSED, _other_software_hint(software))
    reason = f"{run.reason}; " if run.reason and run.status.over else ""
    reason += f"it was written by {_named(software)}: {difference}, which is the one that this {__version__} reads"
    enrolled = tuple(sorted(run.enrolled))
    return HeldRun(run.run_id, status.value, reason, hint, stored.spec_bytes, run.created_at, run.ended_at, enrolled)


def _named(software: str) -> str:
    if software == __version__:
        return f"another build of {software}"
    return f"version {software}" if software else "an earlier version"


def _other_software_hint(software: str) -> str:
    again = "delete it (`dcfpca run delete`) and propose it again"
    until = "while its sites have not been upgraded either"
    return f"run what wrote it, {_named(software)}, to finish it (`dcfpca run finish`) {until}, or {again}"


def keep_opened_sum(db: Database, run_id: str, opened: StoredSum) -> None:
    """Store the sum of a round, and drop those that are no longer kept; part of the caller's transaction.

    It replaces one of those: SQLite then writes into the same pages, in a fraction of the time of new ones.
    """
    rounds = [round for (round,) in db.execute(_SELECT_SUM_ROUNDS, (run_id,))]
    if opened.round not in rounds and rounds and rounds[0] <= opened.round - KEPT_ROUNDS:
        db.execute(_MOVE_SUM, (opened.round, opened.header, opened.values, run_id, rounds[0]))
    else:
        db.execute(_UPSERT_SUM, (run_id, opened.round, opened.header, opened.values))
    db.execute(_DELETE_OLD_SUMS, (run_id, opened.round - KEPT_ROUNDS))


def kept_opened_sum(db: Database, run_id: str, round: int) -> StoredSum | None:
    """The sum of this round, if it is kept."""
    row = db.execute(_SELECT_SUM, (run_id, round)).fetchone()
    return StoredSum(round, *row) if row else None
