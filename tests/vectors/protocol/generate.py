"""Computes the known answers of the fixed-cohort secure sum's primitives, without importing any of our code.

Run it in this folder: `python generate.py > vectors.json`. Everything follows from docs/protocol.md and is computed by
the slowest obvious method: HMAC for HKDF, AES block by block for streams, exact fractions for fixed point.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
from fractions import Fraction

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

P = 2**61 - 1
KEY, CONTEXT, ROSTER = bytes(range(32)), b"\x07" * 32, b"\x09" * 32


def canonical(purpose: str, *fields: object) -> bytes:
    out = b""
    for field in ("dcfpca/v2/" + purpose, *fields):
        raw = field if isinstance(field, bytes) else field.encode() if isinstance(field, str) else _signed(field)
        out += len(raw).to_bytes(4, "big") + raw
    return out


def _signed(number: object) -> bytes:
    assert isinstance(number, int)
    return (number % 2**64).to_bytes(8, "big")


def digest(purpose: str, *fields: object) -> bytes:
    return hashlib.sha256(canonical(purpose, *fields)).digest()


def derive(secret: bytes, purpose: str, *fields: object) -> bytes:
    extracted = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    return hmac.new(extracted, canonical(purpose, *fields) + b"\x01", hashlib.sha256).digest()


def stream(key: bytes, size: int) -> bytes:
    blocks = b"".join(counter.to_bytes(16, "big") for counter in range(size // 16 + 1))
    return Cipher(algorithms.AES256(key), modes.ECB()).encryptor().update(blocks)[:size]


def words(raw: bytes, size: int) -> list[int]:
    return [int.from_bytes(raw[start : start + size], "little") for start in range(0, len(raw), size)]


def fixed(number: float, exponent: int, members: int, precision: int) -> int:
    room = 60 if precision == 64 else 31
    return round(Fraction(number) * Fraction(2) ** (room - members.bit_length() - exponent))


def masked(numbers: list[int], sign: int, precision: int) -> list[int]:
    key, size = derive(KEY, "pair-mask", CONTEXT), precision // 8
    mask = words(stream(key, size * len(numbers)), size)
    return [(number + sign * by) % 2**precision for number, by in zip(numbers, mask, strict=True)]


def tag(integers: list[int], members: int) -> int:
    weights = words(stream(derive(KEY, "tag-weights", CONTEXT), 8 * len(integers)), 8)
    pad = int.from_bytes(derive(KEY, "tag-pad", CONTEXT)[:16], "little") % P
    return (members * pad + sum(weight % 2**61 * x for weight, x in zip(weights, integers, strict=True))) % P


def opening() -> dict[str, str]:
    layout = canonical("layout", canonical("block", "tensor", 4, 6), canonical("block", "columns", 1, 20))
    binding = digest("terms", "run-1", bytes(32), canonical("names", "a", "b", "c"), 8, 64)
    consensus = digest("consensus", hashlib.sha256(b"U").digest())
    exponents = canonical("exponents", 6, 20)
    named = digest("opening", "run-1", bytes(32), ROSTER, 3, consensus, bytes(32), layout, exponents)
    return {
        "binding": binding.hex(),
        "opening": named.hex(),
        "context": digest("context", named, exponents).hex(),
        "context_after_one_lift": digest("context", named, canonical("exponents", 14, 28)).hex(),
        "sum": digest("sum", CONTEXT, hashlib.sha256(bytes(16)).digest(), 5).hex(),
    }


def answers() -> dict[str, object]:
    integers = [0, 1, -1, 2**60 - 1, -(2**60) + 1, 123456789012345678]
    return {
        "opening": opening(),
        "commitment": digest("share-commitment", ROSTER, "a", KEY).hex(),
        "group_secret": digest("group-secret", ROSTER, KEY, CONTEXT).hex(),
        "x25519_key": derive(KEY, "x25519-key").hex(),
        "kem_seed": derive(KEY, "kem-seed").hex(),
        "kem_key": (derive(KEY, "kem-key-d") + derive(KEY, "kem-key-z")).hex(),
        "pair_agreement": derive(KEY, "pair-agreement", ROSTER, "a", "b").hex(),
        "pair_part": derive(KEY, "pair-part", ROSTER, "b").hex(),
        "pair_root": derive(KEY + CONTEXT + ROSTER, "pair-root", "a", "b").hex(),
        "ratchet_twice": derive(derive(KEY, "ratchet"), "ratchet").hex(),
        "sealing_key": derive(KEY + CONTEXT, "seal-share", "a", "b").hex(),
        "masked": {
            f"{precision} {sign:+d}": masked([0, 1, 2**precision - 1], sign, precision)
            for precision in (64, 32)
            for sign in (1, -1)
        },
        "tag_mask": int.from_bytes(derive(KEY, "tag-mask", CONTEXT)[:16], "little") % P,
        "tags": {str(members): tag(integers, members) for members in (1, 5)},
        "tagged": integers,
        "fixed_point": [
            {"x": x, "exponent": e, "members": n, "precision": bits, "integer": fixed(x, e, n, bits)}
            for x, e in ((0.1, 0), (-3.75, 2), (1e-9, 1), (123456.5, 20))
            for n in (2, 64)
            for bits in (64, 32)
        ],
        "ring": sorted("abcdefgh", key=lambda name: digest("ring", KEY, name)),
    }


if __name__ == "__main__":
    json.dump(answers(), sys.stdout, indent=1)
    sys.stdout.write("\n")
