"""The number of cores that this process may use: fewer than the machine has under an affinity mask or a CPU quota."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = CGROUP) -> int:
    """The cores of the affinity mask, bounded by the CPU quota of the process's cgroup (v2), rounded up; at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(cgroup / "cpu.max")
    return max(1, allowed if quota is None else min(allowed, quota))


def _quota(file: Path) -> int | None:
    """Whole cores of a `cpu.max` file, "QUOTA PERIOD" in microseconds; None without a limit."""
    try:
        quota, period = file.read_text().split()
        return -(-int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no such controller, or the word "max"
        return None
