"""Which results a site deletes."""

from __future__ import annotations

import os
from pathlib import Path

from participant.results.reading import delete_expired_results

DAY = 86400.0
NOW = 100 * DAY


def result(directory: Path, name: str, days_ago: float) -> None:
    (directory / name).mkdir()
    manifest = directory / name / "manifest.json"
    manifest.write_text("{}")
    os.utime(manifest, (NOW - days_ago * DAY,) * 2)


def test_results_expire_by_number_and_age_and_other_directories_stay(tmp_path: Path) -> None:
    for name, days in (("new", 1), ("old", 9), ("older", 20)):
        result(tmp_path, name, days)
    (tmp_path / "notes").mkdir()
    assert delete_expired_results(tmp_path, 0, 0, NOW) == []
    assert delete_expired_results(tmp_path, 2, 0, NOW) == ["older"]
    assert delete_expired_results(tmp_path, 0, 5, NOW) == ["old"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "notes"]
