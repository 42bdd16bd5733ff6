"""Shamir's secret sharing of 32-byte secrets over the prime field of 2^256 + 297.

The secret is the constant term of a polynomial of degree threshold − 1; the share at place x is its value there.
Places are small (a position in a neighbourhood, from 1), which keeps the arithmetic cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from math import factorial, prod

from dcfpca.secagg.errors import BelowThreshold, TamperedShare
from dcfpca.secagg.masks import expand

# The smallest prime above 2^256: every 32-byte secret is a field element.
PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33
# 16 bytes more than an element needs leave a bias below 2^-127 after reduction.
_COEFFICIENT_BYTES = SECRET_BYTES + 16


def split(secret: bytes, threshold: int, places: Sequence[int], key: bytes) -> tuple[bytes, ...]:
    """A share for each place; the coefficients are the stream of `key`, which must serve no other sharing."""
    stream = expand(key, _COEFFICIENT_BYTES * (threshold - 1))
    highest_first = [
        int.from_bytes(stream[start : start + _COEFFICIENT_BYTES], "big") % PRIME
        for start in range(0, len(stream), _COEFFICIENT_BYTES)
    ]
    highest_first.append(int.from_bytes(secret, "big"))
    return tuple(_evaluate(highest_first, place).to_bytes(SHARE_BYTES, "big") for place in places)


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret from shares by place; any `threshold` of them give it, fewer give nothing."""
    if len(shares) < threshold:
        raise BelowThreshold(f"{len(shares)} shares do not open a secret that needs {threshold}")
    places = tuple(sorted(shares)[:threshold])
    values = (share_value(shares[place]) for place in places)
    secret = sum(weight * value for weight, value in zip(_weights(places), values, strict=True)) % PRIME
    if secret >> (8 * SECRET_BYTES):
        raise TamperedShare("the shares give something that is not a 32-byte secret")
    return secret.to_bytes(SECRET_BYTES, "big")


def share_value(share: bytes) -> int:
    """The field element of a share, or TamperedShare when these bytes are none."""
    value = int.from_bytes(share, "big")
    if len(share) != SHARE_BYTES or value >= PRIME:
        raise TamperedShare("a share is not an element of the field")
    return value


def _evaluate(highest_first: Sequence[int], place: int) -> int:
    value = 0
    for coefficient in highest_first:
        value = (value * place + coefficient) % PRIME
    return value


@lru_cache(maxsize=256)
def _weights(places: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange weights at zero, w_i = Π_{j≠i} x_j / (x_j − x_i), with one inversion for all of them."""
    numerator, divisors = prod(places), _divisors(places)
    before = list(accumulate(divisors, lambda a, b: a * b % PRIME, initial=1))
    inverse = pow(before[-1], -1, PRIME)
    weights = []
    for divisor, product_before in zip(reversed(divisors), reversed(before[:-1]), strict=True):
        weights.append(numerator * inverse * product_before % PRIME)
        inverse = inverse * divisor % PRIME
    return tuple(reversed(weights))


def _divisors(places: tuple[int, ...]) -> list[int]:
    """x_i Π_{j≠i} (x_j − x_i). Few places are missing, so it is the product over all up to the last, less theirs."""
    last = places[-1]
    missing = sorted(set(range(1, last)) - set(places))
    return [
        x * (-1) ** (x - 1) * factorial(x - 1) * factorial(last - x) // prod([absent - x for absent in missing])
        for x in places
    ]
