"""The ledger: append, read back, and notice every alteration."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from dcfpca.errors import BadInput, Refused
from dcfpca.wire.audit_chain import save_checkpoint, verify_checkpoint
from participant.state.database import DATABASE
from participant.state.ledger import Item, verify
from participant.state.store import Store


def item(kind: str = "masked update", round: int | None = 1, sha: bytes = b"x" * 32) -> Item:
    return Item(kind, "3 × 2 + 1 uint64", 56, sha, "run-1", round, 1)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "state")
    for number in range(5):
        made.ledger.append(item(round=number, sha=bytes([number]) * 32), at_ms=1000 + number)
    return made


def test_what_was_appended_is_read_back_in_order(store: Store) -> None:
    entries = list(store.ledger.entries())
    assert [entry.item.round for entry in entries] == [0, 1, 2, 3, 4]
    assert [entry.at_ms for entry in entries] == [1000, 1001, 1002, 1003, 1004]
    assert verify(entries) == 5


def test_entries_can_be_asked_for_by_run(store: Store) -> None:
    store.ledger.append(Item("answer", "1 signature", 5, b"", "run-2"), at_ms=1)
    assert [entry.item.kind for entry in store.ledger.entries("run-2")] == ["answer"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET size = 1 WHERE sequence = 3",
        "UPDATE ledger SET at_ms = 1 WHERE sequence = 3",
        "UPDATE ledger SET run_id = 'run-9' WHERE sequence = 3",
        "UPDATE ledger SET detail = 'nothing' WHERE sequence = 3",
        "DELETE FROM ledger WHERE sequence = 3",
        "UPDATE ledger SET hash = zeroblob(32) WHERE sequence = 3",
        "DELETE FROM ledger WHERE sequence = 1",
    ],
)
def test_every_alteration_is_noticed(store: Store, tmp_path: Path, statement: str) -> None:
    with sqlite3.connect(tmp_path / "state" / DATABASE) as database:
        database.execute(statement)
    with pytest.raises(Refused, match="altered"):
        verify(store.ledger.entries())


def test_the_chain_goes_on_after_a_restart(store: Store, tmp_path: Path) -> None:
    store.close()
    again = Store(tmp_path / "state")
    again.ledger.append(item(round=9), at_ms=2000)
    assert verify(again.ledger.entries()) == 6


def test_digests_of_one_purpose_are_found(store: Store) -> None:
    assert store.ledger.sent_digests(item(round=3)) == {b"\x03" * 32}
    assert store.ledger.sent_digests(replace(item(round=3), attempt=2)) == set()


def test_entries_cut_off_at_the_end_are_noticed_by_who_noted_the_last(store: Store, tmp_path: Path) -> None:
    def look() -> None:
        hashes = {entry.sequence: entry.hash for entry in store.ledger.entries()}
        save_checkpoint(tmp_path / "seen", verify_checkpoint(tmp_path / "seen", hashes, "the ledger"))

    look()
    store.ledger.append(item(round=9), at_ms=2000)
    look()
    with sqlite3.connect(tmp_path / "state" / DATABASE) as database:
        database.execute("DELETE FROM ledger WHERE sequence = 6")
    assert verify(store.ledger.entries()) == 5, "the chain alone cannot show it"
    with pytest.raises(Refused, match="entry 6"):
        look()


def test_a_ledger_whose_file_is_damaged_is_one_sentence(store: Store, tmp_path: Path) -> None:
    store.close()
    path = tmp_path / "state" / DATABASE
    body = bytearray(path.read_bytes())
    body[4096:] = bytes(len(body) - 4096)
    path.write_bytes(body)
    with pytest.raises(BadInput, match="cannot be"):
        list(Store(tmp_path / "state").ledger.entries())
