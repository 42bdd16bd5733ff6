"""The ledger: what left this site, who approved it, what privacy it cost, and what proves a lie of the aggregator.

Each entry has the hash of the previous one.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dcfpca.errors import Refused, UnusableState

LABEL = "dcfpca/v1/ledger"
APPROVAL, APPROVAL_USED, DECLINED = "approval", "approval used", "declined"
STANDING, STANDING_ENDED = "standing approval", "standing approval ended"
EVIDENCE, RESULT = "evidence", "result"
PRIVACY_CHARGE, PRIVACY_RETURN, NO_PRIVACY = "privacy charge", "privacy return", "no privacy"
NOT_SENT = frozenset(
    {APPROVAL, APPROVAL_USED, DECLINED, STANDING, STANDING_ENDED, EVIDENCE, RESULT}
    | {PRIVACY_CHARGE, PRIVACY_RETURN, NO_PRIVACY}
)
"""Kinds of entries that are no messages."""
FIRST = hashlib.sha256(LABEL.encode()).digest()
_INSERT = (
    "INSERT INTO ledger"
    " (sequence, at_ms, run_id, round, attempt, kind, shape, size, sha256, detail, previous, hash)"
    " VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"
)
_SELECT = (
    "SELECT sequence, at_ms, run_id, round, attempt, kind, shape, size, sha256, detail, previous, hash"
    " FROM ledger WHERE ? IN ('', run_id) ORDER BY sequence"
)
_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Item:
    """One message that is about to leave; or an approval (then `sha256` is the digest of the spec), or evidence, or
    what joining a run means for the privacy of the data with the digest `sha256`, or a verified result (its digest)."""

    kind: str
    shape: str
    size: int
    sha256: bytes
    run_id: str = ""
    round: int | None = None
    attempt: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the ledger."""

    sequence: int
    at_ms: int
    item: Item
    previous: bytes
    hash: bytes

    def computed_hash(self) -> bytes:
        """The hash of the entry's content and of the entry before it."""
        # Written out: a field that is added must not change the hashes of entries that were written without it.
        content = {
            "kind": self.item.kind,
            "shape": self.item.shape,
            "size": self.item.size,
            "sha256": self.item.sha256.hex(),
            "run_id": self.item.run_id,
            "round": self.item.round,
            "attempt": self.item.attempt,
            "detail": self.item.detail,
        }
        line = [LABEL, self.sequence, self.at_ms, content, self.previous.hex()]
        return hashlib.sha256(_ENCODE(line).encode()).digest()

    def is_sealed(self) -> bool:
        """Whether the stored hash matches the content; False also for content of a type that is never written."""
        try:
            return self.hash == self.computed_hash()
        except (AttributeError, TypeError, ValueError):
            return False


class Ledger:
    """Appends to and reads the ledger table of a site's store."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def append(self, item: Item, at_ms: int) -> Entry:
        """Write one entry; durable against a killed process when this returns."""
        return self.append_all([item], at_ms)[0]

    def append_all(self, items: Sequence[Item], at_ms: int) -> list[Entry]:
        """Write the entries of one message, all or none; durable against a killed process when this returns."""
        entries, rows = [], []
        with self._database:
            if not self._database.in_transaction:
                # Locked before the last entry is read: `dcfpca-participant approve` appends from another process.
                self._database.execute("BEGIN IMMEDIATE")
            row = self._database.execute("SELECT sequence, hash FROM ledger ORDER BY sequence DESC LIMIT 1").fetchone()
            sequence, previous = row or (0, FIRST)
            for number, item in enumerate(items, sequence + 1):
                seal = Entry(number, at_ms, item, previous, b"").computed_hash()
                entries.append(Entry(number, at_ms, item, previous, seal))
                place = (number, at_ms, item.run_id, item.round, item.attempt)
                rows.append((*place, item.kind, item.shape, item.size, item.sha256, item.detail, previous, seal))
                previous = seal
            self._database.executemany(_INSERT, rows)
        return entries

    def entries(self, run_id: str = "") -> Iterator[Entry]:
        """All entries in order, of one run or of all."""
        try:
            for row in self._database.execute(_SELECT, (run_id,)):
                yield _entry(row)
        except sqlite3.DatabaseError as error:
            hint = "somebody or something damaged the file; compare with a backup"
            raise UnusableState(f"the ledger cannot be read: {error}", hint) from None

    def sent_digests(self, item: Item) -> set[bytes]:
        """Digests of the recorded messages of the same kind, run, round and attempt as `item`."""
        query = "SELECT sha256 FROM ledger WHERE run_id = ? AND kind = ? AND round IS ? AND attempt IS ?"
        return {row[0] for row in self._database.execute(query, (item.run_id, item.kind, item.round, item.attempt))}


def verify(entries: Iterable[Entry]) -> int:
    """Check the hash chain over all entries; returns their number, raises Refused at the first that does not match."""
    sequence, previous = 0, FIRST
    for entry in entries:
        sequence += 1
        if entry.sequence != sequence or entry.previous != previous or not entry.is_sealed():
            hint = "somebody changed the file; compare with a backup and with the aggregator's audit log"
            raise Refused(f"the ledger was altered at entry {sequence}", hint)
        previous = entry.hash
    return sequence


def _entry(row: tuple[object, ...]) -> Entry:
    try:
        sequence, at_ms, run_id, round, attempt, kind, shape, size, sha256, detail, previous, digest = row
        item = Item(kind, shape, size, sha256, run_id, round, attempt, detail)  # type: ignore[arg-type]
    except ValueError:
        raise UnusableState("the ledger cannot be read") from None
    return Entry(sequence, at_ms, item, previous, digest)  # type: ignore[arg-type]
