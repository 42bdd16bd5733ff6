"""Whether the site's data has changed since it was read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from participant.data.data_config import DataTable


@dataclass(frozen=True, slots=True)
class SourceState:
    """Size, time and place of every file of the data; None where they tell nothing, as of a query."""

    files: tuple[tuple[str, int, int, int], ...] | None

    @classmethod
    def of(cls, table: DataTable) -> SourceState:
        """As the files are now; what is not there has no entry, and reading it says so."""
        if table.query or table.path is None:
            return cls(None)
        named = [path for path in (table.path, table.feature_names, table.persons) if path is not None]
        found = (one for path in named for one in ([path] if path.is_file() else sorted(path.rglob("*"))))
        return cls(tuple(_entry(path) for path in found if path.is_file()))

    def has_changed(self, table: DataTable) -> bool:
        """Whether the data may be another now; of a query nobody knows before it is asked again."""
        return self.files is None or self != SourceState.of(table)


def _entry(path: Path) -> tuple[str, int, int, int]:
    state = path.stat()
    return str(path), state.st_size, state.st_mtime_ns, state.st_ino
