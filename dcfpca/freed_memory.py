"""What the C library and Python do with the memory of a message that is done with."""

from __future__ import annotations

import ctypes
import gc

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's numbers for `mallopt`
KEPT_BYTES = 16 << 20
MAPPED_FROM_BYTES = 4 << 20
NEW_OBJECTS = 10_000


def keep_freed_memory() -> None:
    """Keep up to 16 MiB of freed memory for the next message; does nothing where the C library is not glibc.

    By default every tensor's buffer goes back to the kernel and comes back page by page: 770 page faults in a round of
    ten sites with 400 kB each. Arrays of 4 MiB and more are still returned at once.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
    mallopt(_TRIM_THRESHOLD, KEPT_BYTES)


def collect_garbage_rarely() -> None:
    """Look for cycles of garbage after 10,000 new objects, not 700, and not among the objects that exist by now.

    With a thousand calls open at a time the collector otherwise walks through the objects of all of them every few
    messages: a tenth of the aggregator's CPU. Most garbage has no cycles and is freed at once; what has some, as a call
    that was refused leaves it, stays longer: some 15 MiB after a thousand of those.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 20, 20)
