"""Federated medians: found digit by digit from counts that are summed over sites. Pure.

Every float64 has a place in the order of all float64s, a 64-bit number. Sites count how many of their entries fall into
each of 64 equal intervals of that order; the sum of the counts tells the interval of the median; the next round
divides that one. Each round fixes six more bits, whatever the size of the numbers and however they are dealt out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray

BITS = 6
BINS = 1 << BITS
DIGITS = 5  # rounds per median: 30 bits, of which 18 are of the mantissa
PRECISION = 2.0 ** (12 - BITS * DIGITS)  # relative, of the medians found
BELOW, ABOVE = BINS, BINS + 1  # two more counts beside the bins
COUNTS = BINS + 2

_SIGN = np.uint64(1 << 63)
Keys = NDArray[np.uint64]


def keys_of(values: FloatArray) -> Keys:
    """The rank of each float among all floats, as an integer key; −0 is 0."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def values_of(keys: Keys) -> FloatArray:
    """Inverse of `keys_of`."""
    return np.ascontiguousarray(np.where(keys & _SIGN, keys & ~_SIGN, ~keys)).view(np.float64)


def count(values: FloatArray, prefix: FloatArray, digit: int) -> FloatArray:
    """For each row, the number of entries with its prefix by next digit, and the number below or above the prefix.

    `prefix` are the digits found so far, as whole numbers; NaN entries are not counted.
    """
    rows = values.shape[0]
    keys = keys_of(values) >> np.uint64(64 - BITS * (digit + 1))
    first = (prefix.astype(np.uint64) << np.uint64(BITS))[:, None]
    place = np.where(keys < first, BELOW, np.minimum(keys - first, ABOVE)).astype(np.intp)
    place[(keys >= first) & (keys - first >= BINS)] = ABOVE
    flat = (place + COUNTS * np.arange(rows)[:, None])[~np.isnan(values)]
    return np.bincount(flat, minlength=rows * COUNTS).reshape(rows, COUNTS).astype(np.float64)


def refine(counts: FloatArray, prefix: FloatArray) -> FloatArray:
    """The prefix with one more digit: the interval in which half of all entries is reached.

    Counts outside the prefix are taken anew each round, so that a site that drops out moves the median, as it should,
    and does not break the count.
    """
    counted = np.rint(counts)
    wanted = np.ceil(counted.sum(axis=1) / 2.0) - counted[:, BELOW]
    reached = np.cumsum(counted[:, :BINS], axis=1) >= np.maximum(wanted, 1.0)[:, None]
    digit = np.where(reached.any(axis=1), reached.argmax(axis=1), BINS - 1)
    return prefix * BINS + digit


def value_of_prefix(prefix: FloatArray) -> FloatArray:
    """The median once all digits are found: of the numbers that begin with them, the one nearest to zero."""
    spare = np.uint64(64 - BITS * DIGITS)
    low = prefix.astype(np.uint64) << spare
    last = low | ((np.uint64(1) << spare) - np.uint64(1))
    return values_of(np.where(low & _SIGN, low, last))
