"""The opened sums of the latest rounds of each run with a fixed cohort, for members that check them."""

from __future__ import annotations

from dataclasses import dataclass, field

from aggregator.store.database_port import Database

KEPT_ROUNDS = 2
"""A member checks the sum that the open round follows from; the one before is kept for a member that is behind."""

_UPSERT = (
    "INSERT INTO opened_sums (run_id, round, header, sum) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (run_id, round) DO UPDATE SET header = excluded.header, sum = excluded.sum"
)
_SELECT_ROUNDS = "SELECT round FROM opened_sums WHERE run_id = ? ORDER BY round"
_MOVE = "UPDATE opened_sums SET round = ?, header = ?, sum = ? WHERE run_id = ? AND round = ?"
_DELETE_OLD = "DELETE FROM opened_sums WHERE run_id = ? AND round <= ?"
_SELECT = "SELECT header, sum FROM opened_sums WHERE run_id = ? AND round = ?"


@dataclass(frozen=True, slots=True)
class StoredSum:
    """The sum of one round: a serialized `SumHeader`, and the residues that it announces."""

    round: int
    header: bytes = field(repr=False)
    values: bytes = field(repr=False)


def keep(db: Database, run_id: str, opened: StoredSum) -> None:
    """Store the sum of a round, and drop those that are no longer kept; part of the caller's transaction.

    It replaces one of those: SQLite then writes into the same pages, in a fraction of the time of new ones.
    """
    rounds = [round for (round,) in db.execute(_SELECT_ROUNDS, (run_id,))]
    if opened.round not in rounds and rounds and rounds[0] <= opened.round - KEPT_ROUNDS:
        db.execute(_MOVE, (opened.round, opened.header, opened.values, run_id, rounds[0]))
    else:
        db.execute(_UPSERT, (run_id, opened.round, opened.header, opened.values))
    db.execute(_DELETE_OLD, (run_id, opened.round - KEPT_ROUNDS))


def kept(db: Database, run_id: str, round: int) -> StoredSum | None:
    """The sum of this round, if it is kept."""
    row = db.execute(_SELECT, (run_id, round)).fetchone()
    return StoredSum(round, *row) if row else None
