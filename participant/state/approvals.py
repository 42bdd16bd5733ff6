"""What people at the site say to runs: who agreed to which, until when, and whether it was used; and who declined.

An approval is for one run with the spec that the approver saw, by its digest, and is used once: a later run, even with
the same spec, may expose more together with the earlier one, and is for a person to see. A standing approval is for
later runs with the same spec but for label, seed, time and start; it answers where the site asks about every run, and
never where there is a doubt about one. Sites are not told by a signature who proposes a run, so that it cannot be for
one operator alone. Giving one, using one and declining are entries of the ledger.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime

from participant.state.ledger import APPROVAL, APPROVAL_USED, DECLINED, STANDING, STANDING_ENDED, Item, Ledger

_SELECT = "SELECT id, run_id, digest, approver, expires_ms, used FROM approvals"
_NEXT_USE = (
    "SELECT run_id, approvals.id FROM asking JOIN approvals USING (run_id, digest)"
    " WHERE asking.approved = 0 AND used = 0 AND expires_ms > ?"
    " ORDER BY approvals.id LIMIT 1"
)
_UNDOUBTED = "SELECT run_id, spec, digest FROM runs WHERE status = 'waiting' AND approved = 0 AND reasons = '[]'"
_STANDING = (
    "SELECT sha256, kind, shape, detail FROM ledger WHERE sequence IN"
    " (SELECT max(sequence) FROM ledger WHERE kind IN (?, ?) GROUP BY sha256) ORDER BY sequence"
)
_FREE = ("label", "seed", "enrol_seconds", "warm_start")
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


@dataclass(frozen=True, slots=True)
class StandingApproval:
    """Of later runs like `run_id`, by `likeness`."""

    likeness: bytes
    run_id: str
    approver: str
    expires_ms: int

    def describe(self) -> str:
        """Who, and until when, as the ledger says it."""
        return Approval("", b"", self.approver, self.expires_ms).describe()


def likeness(spec: bytes) -> bytes:
    """What specs share that a standing approval covers: all keys but those that change from run to run."""
    keys = {key: value for key, value in json.loads(spec).items() if key not in _FREE}
    return hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).digest()


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
        for standing in self.likes(now_ms):
            for run_id, spec, digest in self._database.execute(_UNDOUBTED).fetchall():
                if likeness(spec) == standing.likeness:
                    self.give(Approval(run_id, digest, standing.approver, standing.expires_ms), now_ms)
        while self._use_one(now_ms):
            pass
        rows = self._database.execute("SELECT run_id FROM asking WHERE approved != 0")
        return [row[0] for row in rows]

    def allow_like(self, run_id: str, spec: bytes, approver: str, expires_ms: int, at_ms: int) -> StandingApproval:
        """Approve later runs like this one until then; replaces what was said of such runs before."""
        made = StandingApproval(likeness(spec), run_id, approver, expires_ms)
        self._ledger.append(Item(STANDING, f"runs like {run_id}", 0, made.likeness, detail=made.describe()), at_ms)
        return made

    def end_like(self, run_id: str, name: str, at_ms: int) -> bool:
        """End the standing approval of runs like this one; False if none is in force."""
        found = [one for one in self.likes(at_ms) if one.run_id == run_id]
        for one in found:
            shape = f"runs like {run_id}"
            self._ledger.append(Item(STANDING_ENDED, shape, 0, one.likeness, detail=f"by {name}"), at_ms)
        return bool(found)

    def likes(self, now_ms: int) -> list[StandingApproval]:
        """The standing approvals in force, oldest first."""
        found = []
        for digest, kind, shape, detail in self._database.execute(_STANDING, (STANDING, STANDING_ENDED)):
            name, _, until = detail.removeprefix("by ").rpartition(", until ")
            expires_ms = round(1000 * datetime.fromisoformat(until).timestamp()) if kind == STANDING else 0
            if expires_ms > now_ms:
                found.append(StandingApproval(digest, shape.removeprefix("runs like "), name, expires_ms))
        return found

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
