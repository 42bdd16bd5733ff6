"""What is stored anew in every round is written into the pages that it has, and the log is folded when nobody waits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aggregator.store import run_rows
from aggregator.store.codec import dump_consensus
from aggregator.store.database import LOG_BYTES, log_file, open_database
from aggregator.store.run_rows import KEPT_ROUNDS, StoredSum
from dcfpca.rpca.method import Consensus, Progress, TensorMessage

TENSOR = np.ones((40, 5))


def body(round: int, change: float) -> bytes:
    return dump_consensus(
        Consensus(round, "fit", TensorMessage(TENSOR, np.zeros(3)), {}, Progress(change=change, rank=round))
    )


@pytest.mark.parametrize(("round", "change"), [(9, 0.5), (10, 1 / 3), (10_000, 1.2345678901234567e-300), (3, np.nan)])
def test_a_stored_consensus_is_as_long_in_every_round(round: int, change: float) -> None:
    assert len(body(round, change)) == len(body(1, 1.0))


def test_of_the_sums_of_a_run_the_latest_are_kept_in_the_same_rows(tmp_path: Path) -> None:
    database = open_database(tmp_path / "store.db")
    database.execute("PRAGMA foreign_keys = OFF")
    rows = set()
    for run_id, round in [("r1", 0), ("r2", 7), *(("r1", round) for round in (1, 2, 2, 3, 4, 8))]:
        run_rows.keep_opened_sum(database, run_id, StoredSum(round, b"%d" % round, bytes([round]) * 800))
        found = database.execute("SELECT rowid, round FROM opened_sums WHERE run_id = 'r1'").fetchall()
        rows |= {row for row, _ in found}
        assert {kept for _, kept in found} <= set(range(round - KEPT_ROUNDS + 1, round + 1)) or run_id == "r2"
        assert run_rows.kept_opened_sum(database, run_id, round) == StoredSum(
            round, b"%d" % round, bytes([round]) * 800
        )
    assert len(rows) == KEPT_ROUNDS
    assert run_rows.kept_opened_sum(database, "r2", 7) is not None
    database.close()


def test_a_log_that_a_transaction_left_long_is_folded_later(tmp_path: Path) -> None:
    database = open_database(tmp_path / "store.db")
    database.execute("PRAGMA foreign_keys = OFF")
    with database.transaction(fold=False):
        run_rows.keep_opened_sum(database, "r1", StoredSum(1, b"", bytes(2 * LOG_BYTES)))
    before = (tmp_path / "store.db").stat().st_size
    assert log_file(tmp_path / "store.db").stat().st_size > 2 * LOG_BYTES
    database.fold_long_log()
    assert (tmp_path / "store.db").stat().st_size >= before + 2 * LOG_BYTES
    with database.transaction():
        run_rows.keep_opened_sum(database, "r1", StoredSum(2, b"", b"1"))
    assert log_file(tmp_path / "store.db").stat().st_size <= LOG_BYTES
    database.close()
