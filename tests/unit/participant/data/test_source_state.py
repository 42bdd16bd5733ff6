"""A change of the data is noticed, and nothing else is taken for one."""

from __future__ import annotations

import os
from pathlib import Path

from participant.data.data_config import DataTable
from participant.data.source_state import SourceState


def test_a_file_that_is_written_again_or_replaced_has_changed_and_one_that_is_read_has_not(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("a,b\n1,2\n")
    table = DataTable(path=path)
    before = SourceState.of(table)
    path.read_text()
    assert not before.has_changed(table)
    (tmp_path / "new").write_text("a,b\n1,3\n")
    was = path.stat()
    os.utime(tmp_path / "new", ns=(was.st_atime_ns, was.st_mtime_ns))  # as a copy that keeps times
    (tmp_path / "new").replace(path)
    assert before.has_changed(table)
    again = SourceState.of(table)
    path.unlink()
    assert again.has_changed(table)


def test_a_folder_has_changed_when_a_part_is_added(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "1.csv").write_text("a,b\n1,2\n")
    table = DataTable(path=tmp_path / "parts")
    before = SourceState.of(table)
    assert not before.has_changed(table)
    (tmp_path / "parts" / "2.csv").write_text("a,b\n1,2\n")
    assert before.has_changed(table)


def test_of_a_query_nobody_knows(tmp_path: Path) -> None:
    table = DataTable(path=tmp_path, query="SELECT 1")
    assert SourceState.of(table).has_changed(table)
