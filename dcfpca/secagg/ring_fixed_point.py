"""Fixed point in Z/2⁶⁴ (or Z/2³²): numbers whose sum wraps around exactly, so that masks cancel to the last bit.

With the agreed exponent e bounding every update, |x| < 2^e, and n < 2^c participants, a number is stored as
round(x · 2^s) with s = bits − 1 − c − e. The sum of n of them stays below 2^(bits − 1) in magnitude: it never clips,
and of 64 bits at least 62 − log₂ n are left for the number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.secagg.errors import ChangedExponent, UnusableUpdate

FloatArray = NDArray[np.float64]
RingArray = NDArray[np.unsignedinteger[Any]]

MIN_EXPONENT = -960
MAX_EXPONENT = 960


def dtype_of(precision: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The ring as it lies on the wire: little-endian unsigned integers of this many bits."""
    return np.dtype("<u8") if precision == 64 else np.dtype("<u4")


def bounding_exponent(vector: FloatArray) -> int:
    """The smallest e within the limits with |x| < 2^e for every number of the vector."""
    # The largest magnitude is NaN or infinite exactly if some number is, so one pass tells all.
    largest = max(float(np.max(vector, initial=0.0)), -float(np.min(vector, initial=0.0)))
    if not np.isfinite(largest) or np.frexp(largest)[1] > MAX_EXPONENT:
        raise UnusableUpdate(
            "the update has numbers that are not finite or above 2^960", "look at the local data for extreme values"
        )
    return MIN_EXPONENT if largest == 0.0 else max(MIN_EXPONENT, int(np.frexp(largest)[1]))


def check_exponent(exponent: int) -> None:
    """Refuse exponents that fixed point has no room for."""
    if not MIN_EXPONENT <= exponent <= MAX_EXPONENT:
        raise ChangedExponent(f"the exponent {exponent} is outside {MIN_EXPONENT} … {MAX_EXPONENT}")


def encode(vector: FloatArray, exponent: int, participants: int, precision: int) -> RingArray:
    """Fixed point of a vector that the exponent bounds."""
    scaled = vector * _unit(exponent, participants, precision)
    np.rint(scaled, out=scaled)
    return scaled.astype(np.int64).view("<u8").astype(dtype_of(precision), copy=False)


def decode(total: RingArray, exponent: int, participants: int, precision: int) -> FloatArray:
    """The numbers whose fixed point summed to this total."""
    signed = total.view("<i8" if precision == 64 else "<i4").astype(np.float64)
    decoded: FloatArray = signed / _unit(exponent, participants, precision)
    return decoded


def _unit(exponent: int, participants: int, precision: int) -> float:
    """2^s, by which numbers are multiplied exactly."""
    check_exponent(exponent)
    return 2.0 ** (precision - 1 - participants.bit_length() - exponent)
