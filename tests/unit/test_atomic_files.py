"""Directories that hold state are for their owner alone, whatever the umask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator.store.store import Store
from aggregator.store.update_files import UpdateKey
from dcfpca.atomic_files import make_directories
from dcfpca.run_references import AttemptRef


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(root: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_dir()}


def test_every_directory_that_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    make_directories(tmp_path / "a" / "b" / "c")
    make_directories(tmp_path / "a" / "b" / "c")
    assert modes(tmp_path) == {0o700}


def test_nobody_else_can_list_what_the_aggregator_keeps_beside_its_store(tmp_path: Path) -> None:
    (tmp_path / "srv").mkdir(mode=0o755)
    (tmp_path / "srv" / "store.db.updates").mkdir(mode=0o755)
    store = Store(tmp_path / "srv" / "store.db")
    store.updates.add_last([(UpdateKey(AttemptRef("r1", 1, 1), "alpha", bytes(32)), 0, b"whole")])
    store.updates.add(UpdateKey(AttemptRef("r2", 1, 1), "alpha", bytes(32)), 0, b"part")
    store.close()
    assert modes(tmp_path / "srv") == {0o700}
    store = Store(tmp_path / "new" / "deeper" / "store.db")
    store.close()
    assert modes(tmp_path / "new") | {(tmp_path / "new").stat().st_mode & 0o777} == {0o700}
