"""Threads by default: as many as cores that the process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from participant.engine.thread_engine import usable_cores


@pytest.mark.parametrize("text", ["max 100000", "", "100000", "100000 0"])
def test_without_a_quota_the_affinity_mask_counts(tmp_path: Path, text: str) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert usable_cores(tmp_path) == usable_cores(tmp_path / "absent") == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("text", "cores"), [("50000 100000", 1), ("100000 100000", 1)])
def test_a_quota_bounds_the_threads_and_leaves_one(tmp_path: Path, text: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert usable_cores(tmp_path) == cores


def test_a_process_pinned_to_one_core_counts_one(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, before)
