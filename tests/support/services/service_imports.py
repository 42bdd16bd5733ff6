"""What every service has in memory once it is ready, for the process from which the processes of tests fork.

Imported there before its first fork, when there must be no thread but the one that forks.
"""

from pathlib import Path

import aggregator.service  # noqa: F401
import participant.daemon  # noqa: F401
from tests.support.services.compiled_loops import load_compiled_loops

load_compiled_loops()
assert len(list(Path("/proc/self/task").iterdir())) == 1, "an import started a thread: what forks must have none"
