"""A second record of what runs have spent of the privacy budget, outside the state directory.

The ledger is the first. A state directory that is put back from a backup has forgotten what was spent since; this file,
beside the results, has not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from dcfpca.atomic_files import atomic_write, sync_directory, sync_file
from dcfpca.errors import UnusableState
from dcfpca.privacy.zcdp import epsilon_of
from participant.state.disk import is_disk_full

NAME = "privacy-spent.json"
Unit = Literal["column", "person"]
_KEYS = ("run", "data", "rho", "delta", "unit", "at_ms", "kept")


@dataclass(frozen=True, slots=True)
class Charge:
    """What one run may spend of the privacy of each `unit` of this data (its SHA-256); once an update of the run has
    left, the second record has it as `kept`: it is not given back."""

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
    """The file `privacy-spent.json` in a directory; a change is on the disk when its method returns."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME

    def standing(self) -> list[Charge]:
        """The charges that were not given back, in the order in which they were made."""
        try:
            return [_charge(one) for one in json.loads(self.path.read_text(encoding="utf-8"))["charges"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = "put it back from a backup; without it, what a restored state directory has forgotten is not known"
            raise UnusableState(f"the record of privacy spent, {self.path}, cannot be read ({error})", hint) from None

    def add(self, charge: Charge) -> None:
        """Enter a charge."""
        self._write([*self.standing(), charge])

    def remove(self, charge: Charge) -> None:
        """Enter that a charge was given back."""
        self._write([one for one in self.standing() if one.key != charge.key])

    def keep(self, charge: Charge) -> None:
        """Enter that a charge is not given back any more."""
        found = self.standing()
        if not any(one.key == charge.key and one.kept for one in found):
            self._write([replace(one, kept=one.kept or one.key == charge.key) for one in found])

    def is_kept(self, run_id: str) -> bool:
        """Whether a charge of this run is not given back any more."""
        return any(one.run_id == run_id and one.kept for one in self.standing())

    def _write(self, charges: list[Charge]) -> None:
        told = json.dumps({"charges": [_document(one) for one in charges]}, indent=1) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(self.path, lambda file: file.write(told.encode()))
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


def _charge(told: dict[str, Any]) -> Charge:
    run_id, data, rho, delta, unit, at_ms = (told[key] for key in _KEYS[:-1])
    named: Unit = "person" if unit == "person" else "column"
    kept = bool(told.get("kept", True))
    return Charge(str(run_id), bytes.fromhex(data), float(rho), float(delta), named, int(at_ms), kept)
