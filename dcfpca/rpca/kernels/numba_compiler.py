"""Compiles plain loops where numba is installed (the extra `fast`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Freedoms = frozenset[str]
Loop = Callable[..., Any]

# What a compiler may do to the numbers of a loop: nothing; fuse products into sums; and take sums in any order, too.
STRICT: Freedoms = frozenset()
FUSED: Freedoms = frozenset({"contract"})
RELAXED: Freedoms = frozenset({"reassoc", "contract", "nsz"})  # NaN and Inf keep their meaning


def compiler() -> Callable[[Loop, Freedoms], Loop] | None:
    """The function that compiles a loop with these freedoms; None without numba, which is imported on demand."""
    try:
        import numba  # noqa: PLC0415
    except ImportError:
        return None

    def compile_one(loop: Loop, freedoms: Freedoms) -> Loop:
        fastmath = set(freedoms)
        try:
            return numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=fastmath)(loop)
        except RuntimeError:  # nowhere to keep the compiled code, as in a read-only image
            return numba.njit(nogil=True, error_model="numpy", fastmath=fastmath)(loop)

    return compile_one
