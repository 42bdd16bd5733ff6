"""What people at the site say to runs: who agreed to which, until when, and whether it was used; and who declined.

An approval is for one run with the spec that the approver saw, by its digest, and is used once: a later run, even with
the same spec, may expose more together with the earlier one, and is for a person to see. Giving one, using one and
declining are entries of the ledger.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime

from participant.state.ledger import APPROVAL, APPROVAL_USED, DECLINED, Item, Ledger

_SELECT = "SELECT id, run_id, digest, approver, expires_ms, used FROM approvals"
_NEXT_USE = (
    "SELECT run_id, approvals.id FROM asking JOIN approvals USING (run_id, digest)"
    " WHERE asking.approved = 0 AND used = 0 AND expires_ms > ?"
    " ORDER BY approvals.id LIMIT 1"
)
_DECLINED = (
    "SELECT asking.run_id, ledger.detail FROM asking JOIN ledger ON ledger.run_id = asking.run_id AND ledger.kind = ?"
    " AND ledger.sha256 = asking.digest GROUP BY asking.run_id"
)


@dataclass(frozen=True, slots=True)
class Approval:
    """One approval of a run with the spec of this digest, until `expires_ms`; `used` 0 or 1 times."""

    run_id: str
    digest: bytes
    approver: str
    expires_ms: int
    used: int = 0

    def describe(self) -> str:
        """Who, and until when, as the ledger says it."""
        until = datetime.fromtimestamp(self.expires_ms / 1000, UTC).isoformat(timespec="seconds")
        return f"by {self.approver}, until {until}"


class Approvals:
    """Gives and uses approvals; `dcfpca-participant approve` and the daemon do so from different processes."""

    def __init__(self, database: sqlite3.Connection, ledger: Ledger) -> None:
        self._database, self._ledger = database, ledger

    def give(self, approval: Approval, at_ms: int) -> None:
        """Record an approval, together with its entry in the ledger."""
        kept = (approval.run_id, approval.digest, approval.approver, at_ms, approval.expires_ms)
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            insert = "INSERT INTO approvals (run_id, digest, approver, given_ms, expires_ms)"
            database.execute(f"{insert} VALUES (?, ?, ?, ?, ?)", kept)
            self._ledger.append(_item(APPROVAL, approval, "for 1 use"), at_ms)

    def use(self, now_ms: int) -> list[str]:
        """Use approvals that are in force for the runs that wait for one; returns the runs that may be answered.

        A run keeps the approval it used, so that a restart before its answer uses no second one.
        """
        while self._use_one(now_ms):
            pass
        rows = self._database.execute("SELECT run_id FROM asking WHERE approved != 0")
        return [row[0] for row in rows]

    def decline(self, run_id: str, digest: bytes, name: str, reason: str, at_ms: int) -> None:
        """Record that a person declines the run with the spec of this digest; only the reason leaves the site."""
        self._ledger.append(Item(DECLINED, f"by {name}", 0, digest, run_id, detail=reason), at_ms)

    def declined(self) -> list[tuple[str, str]]:
        """The runs that wait although a person has declined them, with the reason."""
        return [(run_id, reason) for run_id, reason in self._database.execute(_DECLINED, (DECLINED,))]

    def standing(self, now_ms: int) -> list[Approval]:
        """Approvals that were not used and have not expired, oldest first."""
        query = f"{_SELECT} WHERE used = 0 AND expires_ms > ? ORDER BY id"
        return [Approval(*row[1:]) for row in self._database.execute(query, (now_ms,))]

    def _use_one(self, now_ms: int) -> bool:
        with self._database as database:
            found = database.execute(_NEXT_USE, (now_ms,)).fetchone()
            if found is None:
                return False
            run_id, number = found
            database.execute("BEGIN IMMEDIATE")
            database.execute("UPDATE approvals SET used = used + 1 WHERE id = ?", (number,))
            database.execute("UPDATE runs SET approved = ? WHERE run_id = ?", (number, run_id))
            approval = Approval(*database.execute(f"{_SELECT} WHERE id = ?", (number,)).fetchone()[1:])
            self._ledger.append(_item(APPROVAL_USED, approval, f"use {approval.used} of 1"), now_ms)
        return True


def _item(kind: str, approval: Approval, shape: str) -> Item:
    return Item(kind, shape, 0, approval.digest, approval.run_id, detail=approval.describe())
