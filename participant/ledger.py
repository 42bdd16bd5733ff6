"""The ledger: what has left this site, in order, each entry sealed by the hash of the one before."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dcfpca.errors import Refused, UnusableState

LABEL = "dcfpca/v1/ledger"
FIRST = hashlib.sha256(LABEL.encode()).digest()
_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Item:
    """One message that is about to leave."""

    kind: str
    shape: str
    size: int
    sha256: bytes
    run_id: str = ""
    round: int | None = None
    attempt: int | None = None
    detail: str = ""

    def content(self) -> dict[str, str | int | None]:
        """All that is sealed, as JSON has it."""
        return {
            "kind": self.kind,
            "shape": self.shape,
            "size": self.size,
            "sha256": self.sha256.hex(),
            "run_id": self.run_id,
            "round": self.round,
            "attempt": self.attempt,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger."""

    sequence: int
    at_ms: int
    item: Item
    previous: bytes
    hash: bytes

    def computed_hash(self) -> bytes:
        """The hash that the entry's content asks for."""
        line = [LABEL, self.sequence, self.at_ms, self.item.content(), self.previous.hex()]
        return hashlib.sha256(_ENCODE(line).encode()).digest()

    def is_sealed(self) -> bool:
        """Whether the hash is that of the content; content of another type than was written is none of ours."""
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
        """Write several entries, all or none, for what leaves in one message."""
        entries: list[Entry] = []
        with self._database:
            sequence, previous = self._last()
            for number, item in enumerate(items, sequence + 1):
                seal = Entry(number, at_ms, item, previous, b"").computed_hash()
                entries.append(Entry(number, at_ms, item, previous, seal))
                previous = seal
            rows = map(_row, entries)
            self._database.executemany("INSERT INTO ledger VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", rows)
        return entries

    def entries(self, run_id: str = "") -> Iterator[Entry]:
        """All entries in order, of one run or of all."""
        query = "SELECT * FROM ledger WHERE ? IN ('', run_id) ORDER BY sequence"
        try:
            for row in self._database.execute(query, (run_id,)):
                yield _entry(row)
        except sqlite3.DatabaseError as error:
            hint = "somebody or something damaged the file; compare with a backup"
            raise UnusableState(f"the ledger cannot be read: {error}", hint) from None

    def digests(self, run_id: str, round: int | None, attempt: int | None, kind: str) -> set[bytes]:
        """Digests of what has left under this key; more than one would be two different messages for one purpose."""
        query = "SELECT sha256 FROM ledger WHERE run_id = ? AND kind = ? AND round IS ? AND attempt IS ?"
        return {row[0] for row in self._database.execute(query, (run_id, kind, round, attempt))}

    def _last(self) -> tuple[int, bytes]:
        row = self._database.execute("SELECT sequence, hash FROM ledger ORDER BY sequence DESC LIMIT 1").fetchone()
        return row or (0, FIRST)


def verify(entries: Iterable[Entry]) -> int:
    """Check the chain of all entries; returns their number, raises Refused at the first that does not fit."""
    sequence, previous = 0, FIRST
    for entry in entries:
        sequence += 1
        if entry.sequence != sequence or entry.previous != previous or not entry.is_sealed():
            hint = "somebody changed the file; compare with a backup and with the aggregator's audit log"
            raise Refused(f"the ledger was altered at entry {sequence}", hint)
        previous = entry.hash
    return sequence


def _row(entry: Entry) -> tuple[object, ...]:
    item = entry.item
    place = (entry.sequence, entry.at_ms, item.run_id, item.round, item.attempt)
    return (*place, item.kind, item.shape, item.size, item.sha256, item.detail, entry.previous, entry.hash)


def _entry(row: tuple[object, ...]) -> Entry:
    try:
        sequence, at_ms, run_id, round, attempt, kind, shape, size, sha256, detail, previous, digest = row
        item = Item(kind, shape, size, sha256, run_id, round, attempt, detail)  # type: ignore[arg-type]
    except ValueError:
        raise UnusableState("the ledger cannot be read") from None
    return Entry(sequence, at_ms, item, previous, digest)  # type: ignore[arg-type]
