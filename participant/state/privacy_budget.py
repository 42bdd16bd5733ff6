"""What runs with differential privacy have spent at this site, and on which data: entries of the ledger.

A run is charged in the transaction that saves the site's consent, before its first message leaves, with all that it can
spend. It is given back only if the run is over and no update ever left. Every charge is also in a second record outside
the state directory, and there, too, whether an update left: a state directory restored from a backup forgets neither.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dcfpca.atomic_files import atomic_write, make_directories, sync_directory, sync_file
from dcfpca.errors import UnusableState
from dcfpca.privacy.settings import PrivacySettings
from dcfpca.privacy.zcdp import epsilon_of
from dcfpca.secagg.column_sets import ColumnSet
from participant.privacy_review import Spending, composed, rho_asked
from participant.state.column_sets import ColumnSets
from participant.state.directory import is_disk_full
from participant.state.ledger import NO_PRIVACY, PRIVACY_CHARGE, PRIVACY_RETURN, Item, Ledger

NAME = "privacy-spent.json"
Unit = Literal["column", "person"]
_KEYS = ("run", "data", "rho", "delta", "unit", "at_ms", "kept")


@dataclass(frozen=True, slots=True)
class Charge:
    """What one run may spend of the privacy of each `unit` of this data (the digest of its columns); once an update of
    the run has left, the second record has it as `kept`: it is not given back."""

    run_id: str
    data: bytes
    rho: float
    delta: float
    unit: Unit
    at_ms: int
    kept: bool = False

    @property
    def epsilon(self) -> float:
        """ε of the run at its own δ."""
        return epsilon_of(self.rho, self.delta)

    @property
    def key(self) -> tuple[str, int]:
        """Tells two charges of one run apart: a run that is joined again after a loss of state spends again."""
        return self.run_id, self.at_ms


class PrivacyRecord:
    """The second record, `privacy-spent.json` beside the results; a change is on the disk when its method returns."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME

    def standing(self) -> list[Charge]:
        """The charges that were not given back, in the order in which they were made."""
        try:
            return [_charge(one) for one in json.loads(self.path.read_text(encoding="utf-8"))["charges"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = "put it back from a backup; without it, nobody knows what a restored state directory has forgotten"
            raise UnusableState(f"the record of privacy spent, {self.path}, cannot be read ({error})", hint) from None

    def add(self, charge: Charge) -> None:
        """Enter a charge."""
        self._write([*self.standing(), charge])

    def remove(self, charge: Charge) -> None:
        """Enter that a charge was given back."""
        self._write([one for one in self.standing() if one.key != charge.key])

    def keep(self, charge: Charge) -> None:
        """Enter that a charge is no longer given back."""
        found = self.standing()
        if not any(one.key == charge.key and one.kept for one in found):
            self._write([replace(one, kept=one.kept or one.key == charge.key) for one in found])

    def is_kept(self, run_id: str) -> bool:
        """Whether a charge of this run is no longer given back."""
        return any(one.run_id == run_id and one.kept for one in self.standing())

    def _write(self, charges: list[Charge]) -> None:
        text = json.dumps({"charges": [_document(one) for one in charges]}, indent=1) + "\n"
        try:
            make_directories(self.path.parent)
            atomic_write(self.path, lambda file: file.write(text.encode()))
            self.path.chmod(0o600)
            sync_file(self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            if is_disk_full(error, self.path.parent):
                raise  # the daemon waits for space, as it does where the state is
            hint = "let this user write to [results] dir; the daemon joins no run that it cannot record there"
            raise UnusableState(f"{self.path} cannot be written: {error.strerror}", hint) from error


def _document(charge: Charge) -> dict[str, Any]:
    figures = (charge.run_id, charge.data.hex(), charge.rho, charge.delta, charge.unit, charge.at_ms, charge.kept)
    return dict(zip(_KEYS, figures, strict=True))


def _charge(entry: dict[str, Any]) -> Charge:
    run_id, data, rho, delta, unit, at_ms = (entry[key] for key in _KEYS[:-1])
    named: Unit = "person" if unit == "person" else "column"
    kept = bool(entry.get("kept", True))
    return Charge(str(run_id), bytes.fromhex(data), float(rho), float(delta), named, int(at_ms), kept)


YEAR_MS = 365 * 86_400_000
_ORDINARY_SKEW_MS = 60_000
"""A time server may set a clock back by this much; the ledger does not mention it."""
_SHAPE = re.compile(r"rho=(\S+) delta=(\S+) unit=(column|person)")
_CHARGES = "SELECT run_id, sha256, shape, at_ms, kind FROM ledger WHERE kind IN (?, ?) ORDER BY sequence"
_CHARGES_OF_RUN = (
    "SELECT run_id, sha256, shape, at_ms, kind FROM ledger WHERE kind IN (?, ?) AND run_id = ? ORDER BY sequence"
)
_WITHOUT = (
    "SELECT run_id, data FROM exposed_cohorts WHERE run_id NOT IN (SELECT run_id FROM ledger WHERE kind = :charge)"
    " UNION SELECT run_id, sha256 FROM ledger AS joined WHERE kind = :none"
    " AND EXISTS (SELECT 1 FROM ledger WHERE run_id = joined.run_id AND kind LIKE '% update') ORDER BY 1"
)
_SENT_SINCE = (
    "SELECT run_id FROM runs WHERE status = 'enrolled'"
    " UNION SELECT run_id FROM ledger WHERE kind LIKE '% update' AND at_ms > ?"
)


class PrivacyBudget:
    """Charges runs and says what was spent. `record` is the second record; None for commands that only read."""

    def __init__(
        self, database: sqlite3.Connection, ledger: Ledger, sets: ColumnSets, record: PrivacyRecord | None = None
    ) -> None:
        self._database, self._ledger, self._sets, self._record = database, ledger, sets, record

    def join(self, run_id: str, columns: ColumnSet, privacy: PrivacySettings | None, unit: Unit, at_ms: int) -> None:
        """Enter that the site joins a run, with its charge or without privacy; ends the transaction that is open.

        A charge is dated no earlier than what was entered before it, so that it counts for a year also after a clock
        that was set back is put right.
        """
        data = columns.digest
        if privacy is None:
            detail = "joined without differential privacy"
            self._ledger.append(Item(NO_PRIVACY, "", 0, data, run_id, detail=detail), at_ms)
            return
        latest_ms = self._latest_ms()
        charge = Charge(run_id, data, rho_asked(privacy), privacy.delta, unit, max(at_ms, latest_ms))
        together = composed((charge.rho, self._spent_on(columns, self.standing())))
        cost = f"ε = {privacy.epsilon:g} at δ = {privacy.delta:g} for one {unit}"
        detail = f"{cost}; ε = {epsilon_of(together, privacy.delta):.4g} with all runs over this data"
        if at_ms < latest_ms - _ORDINARY_SKEW_MS:
            detail += f"; dated like the latest entry, as the clock is {_span(latest_ms - at_ms)} behind it"
        self._ledger.append(Item(PRIVACY_CHARGE, _shape(charge), 0, data, run_id, detail=detail), charge.at_ms)
        self.reconcile()

    def settle(self, run_id: str, at_ms: int) -> None:
        """The run is over at this site: give its charge back if no update of it was ever made ready to leave."""
        if (charge := self.charge_of(run_id)) is None or self._is_exposed(run_id):
            return
        detail = "the run ended before an update left"
        self._ledger.append(Item(PRIVACY_RETURN, _shape(charge), 0, charge.data, run_id, detail=detail), at_ms)
        self.reconcile()

    def keep(self, run_id: str) -> None:
        """An update of the run is about to leave: its charge stays, also in a state restored from an earlier backup."""
        if self._record is not None and (charge := self.charge_of(run_id)) is not None:
            self._record.keep(charge)

    def reconcile(self) -> None:
        """Bring the second record up to the ledger; the daemon does so at its start and before a message leaves."""
        if self._record is None:
            return
        standing = {charge.key for charge in self._record.standing()}
        charged, returned = self._entries()
        for run_id, charge in charged.items():
            if charge.key not in standing and run_id not in returned:
                self._record.add(charge)
            elif charge.key in standing and run_id in returned:
                self._record.remove(charge)

    def standing(self) -> list[Charge]:
        """The charges that count: those of the ledger, and those that only the second record remembers."""
        charged, returned = self._entries()
        entered = {charge.key for charge in charged.values()}
        remembered = self._record.standing() if self._record else []
        counting = [charge for run_id, charge in charged.items() if run_id not in returned]
        return [*counting, *(charge for charge in remembered if charge.key not in entered)]

    def spending(self, columns: ColumnSet, now_ms: int) -> Spending:
        """ρ spent on that of these columns on which most was, and on any within the last 365 days or dated later.

        A run is charged when it is joined and sends updates later, so an open run counts however old its charge is.
        """
        exposed = {row[0] for row in self._database.execute(_SENT_SINCE, (now_ms - YEAR_MS,))}
        charges = self.standing()
        return spending_of(charges, self._spent_on(columns, charges), now_ms, exposed)

    def charges_on(self, columns: ColumnSet) -> list[Charge]:
        """The charges of runs that any of these columns was in."""
        return [one for one in self.standing() if columns.shared_with(self._sets.find(one.data)).any()]

    def _spent_on(self, columns: ColumnSet, charges: Sequence[Charge]) -> float:
        """The largest sum of ρ over the runs that one column, or its person, was in."""
        if not charges or not columns.contents.size:
            return 0.0
        shared = np.stack([columns.shared_with(self._sets.find(one.data)) for one in charges])
        patterns = np.unique(shared, axis=1).T
        return max(composed(one.rho for one, is_in in zip(charges, row, strict=True) if is_in) for row in patterns)

    def charge_of(self, run_id: str) -> Charge | None:
        """What the ledger has charged for a run; None for one without privacy, or given back."""
        charged, returned = self._entries(run_id)
        return None if returned else charged.get(run_id)

    def runs_without(self, columns: ColumnSet) -> tuple[str, ...]:
        """Runs without privacy over any of these columns that sent at least one update, sorted by identifier."""
        rows = self._database.execute(_WITHOUT, {"none": NO_PRIVACY, "charge": PRIVACY_CHARGE})
        found = [run for run, data in rows if columns.shared_with(self._sets.find(data)).any()]
        return tuple(dict.fromkeys(found))

    def _latest_ms(self) -> int:
        """The latest time in the ledger or of a charge in the second record; 0 where there is none."""
        (entered,) = self._database.execute("SELECT MAX(at_ms) FROM ledger").fetchone()
        remembered = self._record.standing() if self._record else []
        return max([entered or 0, *(charge.at_ms for charge in remembered)])

    def _is_exposed(self, run_id: str) -> bool:
        query = "SELECT 1 FROM exposed_cohorts WHERE run_id = ?"
        if self._database.execute(query, (run_id,)).fetchone() is not None:
            return True
        return self._record is not None and self._record.is_kept(run_id)

    def _entries(self, run_id: str = "") -> tuple[dict[str, Charge], set[str]]:
        """Charges by run, and the runs whose charge was given back; of one run or of all."""
        charged, returned = dict[str, Charge](), set[str]()
        for kind, charge in self._rows(run_id):
            if kind == PRIVACY_RETURN:
                returned.add(charge.run_id)
            else:
                charged[charge.run_id] = charge
        return charged, returned

    def _rows(self, of: str) -> Iterator[tuple[str, Charge]]:
        query, kinds = _CHARGES_OF_RUN if of else _CHARGES, (PRIVACY_CHARGE, PRIVACY_RETURN)
        for run_id, data, shape, at_ms, kind in self._database.execute(query, (*kinds, of) if of else kinds):
            found = _SHAPE.fullmatch(shape)
            if found is None:
                hint = "see `dcfpca-participant ledger --verify`, and compare with a backup"
                raise UnusableState(f"the ledger's entry of what run {run_id} spends cannot be read", hint)
            unit: Unit = "person" if found[3] == "person" else "column"
            yield kind, Charge(run_id, data, float(found[1]), float(found[2]), unit, at_ms)


def spending_of(
    charges: Sequence[Charge], on_data: float, now_ms: int, exposed: Collection[str] = frozenset()
) -> Spending:
    """ρ on this data as given, and of the charges of the last 365 days, dated later than now or of an exposed run."""
    return Spending(
        on_data,
        composed(charge.rho for charge in charges if charge.at_ms > now_ms - YEAR_MS or charge.run_id in exposed),
        sum(charge.at_ms > now_ms for charge in charges),
    )


def _span(milliseconds: int) -> str:
    days = milliseconds / 86_400_000
    return f"{days:.0f} days" if days >= 2.0 else f"{milliseconds / 1000:.0f} seconds"


def _shape(charge: Charge) -> str:
    """The exact figures, as the ledger keeps them."""
    return f"rho={charge.rho!r} delta={charge.delta!r} unit={charge.unit}"
