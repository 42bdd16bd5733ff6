"""Compiles plain loops where numba is installed (the extra `fast`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Sums may be taken in any order and products fused into them; NaN and Inf keep their meaning.
RELAXED = {"reassoc", "contract", "nsz"}
Loop = Callable[..., Any]


def compiler() -> Callable[[Loop, bool], Loop] | None:
    """The function that compiles a loop, relaxed or strictly; None without numba, which is imported on demand."""
    try:
        import numba  # noqa: PLC0415
    except ImportError:
        return None

    def compile_one(loop: Loop, relaxed: bool) -> Loop:
        fastmath = RELAXED if relaxed else False
        try:
            return numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=fastmath)(loop)
        except RuntimeError:  # nowhere to keep the compiled code, as in a read-only image
            return numba.njit(nogil=True, error_model="numpy", fastmath=fastmath)(loop)

    return compile_one
