"""What people at the site decided about findings: an error, real, or unsure; who, when, and a note.

They are in a file of their own beside the site's state, which no message depends on: it may be copied and put back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from dcfpca.errors import BadInput
from participant.results.flag_tables import WITHOUT_PARQUET, Chunk, write_csv, write_parquet
from participant.state.database import make_private_file

DECISIONS = "decisions.db"
VERDICTS = ("error", "real", "unsure")
COLUMNS = dict.fromkeys(("id", "feature", "value", "decision", "by", "at", "note", "run"), "string")
LONGEST_NOTE = 1000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS decisions (  -- the last one about a value counts
    number  INTEGER PRIMARY KEY,
    sample  TEXT NOT NULL,
    feature TEXT NOT NULL,
    value   TEXT NOT NULL,
    verdict TEXT NOT NULL CHECK (verdict IN ('error', 'real', 'unsure')),
    name    TEXT NOT NULL,
    at_ms   INTEGER NOT NULL,
    note    TEXT NOT NULL,
    run_id  TEXT NOT NULL                -- in whose worklist it was decided
) STRICT;
"""
_LAST = "SELECT sample, feature, value, verdict, name, at_ms, note, run_id FROM decisions ORDER BY number"


class Place(NamedTuple):
    """What a decision is about."""

    sample: str
    feature: str
    value: str


@dataclass(frozen=True, slots=True)
class Decision:
    """One of VERDICTS, by whom, when, and why."""

    verdict: str
    name: str
    at_ms: int
    note: str = ""
    run_id: str = ""

    @property
    def at(self) -> str:
        """The time, in words."""
        return f"{datetime.fromtimestamp(self.at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


class Decisions:
    """The decisions of a site; nothing is overwritten, the last one about a value counts."""

    def __init__(self, directory: Path) -> None:
        path = directory / DECISIONS
        make_private_file(path)
        self._database = sqlite3.connect(path, timeout=10, check_same_thread=False)
        self._database.execute(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def decide(self, place: Place, decision: Decision) -> None:
        """Keep a decision; BadInput if it is none, nobody is named, or the note is too long."""
        if decision.verdict not in VERDICTS:
            raise BadInput(f"a decision is {', '.join(VERDICTS[:-1])} or {VERDICTS[-1]}", "choose one of them")
        if not decision.name.strip() or not decision.name.isprintable():
            raise BadInput("a decision names who makes it", "write your name")
        if len(decision.note) > LONGEST_NOTE:
            raise BadInput(f"a note has at most {LONGEST_NOTE} characters", "shorten it")
        values = (*place, decision.verdict, decision.name.strip(), decision.at_ms, decision.note, decision.run_id)
        with self._database as database:
            names = "sample, feature, value, verdict, name, at_ms, note, run_id"
            database.execute(f"INSERT INTO decisions ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)  # noqa: S608

    def all(self) -> Mapping[Place, Decision]:
        """The last decision about each value, the oldest first."""
        return {Place(*row[:3]): Decision(*row[3:]) for row in self._database.execute(_LAST)}

    def export(self, out: Path) -> int:
        """Write them as .csv or .parquet, by the name of the file; returns how many."""
        found = [(*place, one.verdict, one.name, one.at, one.note, one.run_id) for place, one in self.all().items()]
        lines: list[Chunk] = [[[line[k] for line in found] for k in range(len(COLUMNS))]]
        if out.suffix == ".parquet":
            if find_spec("pyarrow") is None:
                raise BadInput(WITHOUT_PARQUET, "install it, or name a .csv file")
            write_parquet(out, COLUMNS, lines)
        else:
            write_csv(out, COLUMNS, lines)
        return len(found)


def known_decisions(directory: Path) -> Mapping[Place, Decision]:
    """Those in a state directory; none where nobody has decided anything."""
    if not (directory / DECISIONS).exists():
        return {}
    with closing(Decisions(directory)) as kept:
        return kept.all()
