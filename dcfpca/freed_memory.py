"""Tunes how glibc and Python's garbage collector deal with the memory of finished messages."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's numbers for `mallopt`
KEPT_BYTES = 64 << 20
MAPPED_FROM_BYTES = 4 << 20
NEW_OBJECTS = 10_000


def keep_freed_memory(mapped_from: int = MAPPED_FROM_BYTES) -> None:
    """Keep up to 64 MiB of freed memory at the end of each heap for the next message; does nothing without glibc.

    By default every tensor's buffer goes back to the kernel and comes back page by page: 770 page faults in a round of
    ten sites with 400 kB each, and with 3.6 MB each a fifth of the round's CPU. Arrays of `mapped_from` bytes and more
    are still returned at once, and the rest with `return_freed_memory`.
    """
    if (mallopt := _of_glibc("mallopt")) is not None:
        mallopt(_MMAP_THRESHOLD, mapped_from)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)


def return_freed_memory() -> None:
    """Return the kept memory to the kernel: a run is over, and no message follows soon."""
    if (malloc_trim := _of_glibc("malloc_trim")) is not None:
        malloc_trim(0)


def _of_glibc(name: str) -> Callable[..., int] | None:
    """The function of the C library; None where that is not glibc."""
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
    return function


def collect_garbage_rarely() -> None:
    """Run the cycle collector after 10,000 new objects, not after 700 to 2,000, and never over those that exist now.

    With a thousand calls open at a time the collector otherwise walks through the objects of all of them every few
    messages: a tenth of the aggregator's CPU. Most garbage has no cycles and is freed at once. Cycles, such as those
    of a refused call, stay longer: about 15 MiB after a thousand refusals.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 20, 20)
