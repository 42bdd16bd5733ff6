"""Computes the known answers of the secure sum's primitives, without importing any of our code.

Run it in this folder: `python generate.py > vectors.json`. A case has either the answer or, under `failure`, the name
of the error that must come. From outside are: HKDF (RFC 5869), X25519 (RFC 7748, section 6.1), AES-256-GCM (McGrew and
Viega, test cases 13 and 14), AES-256 (SP 800-38A, F.1.5); the rest follows from docs/protocol.md and is computed by the
slowest obvious method: HMAC for HKDF, AES block by block for streams.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sys

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

KEY = bytes(range(32))


def canonical(purpose: str, *fields: object) -> bytes:
    out = b""
    for field in ("dcfpca/v2/" + purpose, *fields):
        raw = field if isinstance(field, bytes) else field.encode() if isinstance(field, str) else _signed(field)
        out += len(raw).to_bytes(4, "big") + raw
    return out


def _signed(number: object) -> bytes:
    assert isinstance(number, int)
    return (number % 2**64).to_bytes(8, "big")


def hkdf(secret: bytes, info: bytes, salt: bytes = b"", length: int = 32) -> bytes:
    extracted = hmac.new(salt or bytes(32), secret, hashlib.sha256).digest()
    okm, block = b"", b""
    for counter in range(1, length // 32 + 2):
        block = hmac.new(extracted, block + info + bytes([counter]), hashlib.sha256).digest()
        okm += block
    return okm[:length]


def stream(key: bytes, size: int) -> bytes:
    blocks = b"".join(counter.to_bytes(16, "big") for counter in range(size // 16 + 1))
    return Cipher(algorithms.AES256(key), modes.ECB()).encryptor().update(blocks)[:size]


def canonical_cases() -> list[dict[str, object]]:
    fields: list[list[object]] = [[], ["a", "bc"], ["ab", "c"], ["", "abc"], [7, -7]]
    return [{"purpose": "demo", "fields": f, "bytes": canonical("demo", *f).hex()} for f in fields]


def derive_cases() -> list[dict[str, object]]:
    return [
        {"secret": KEY.hex(), "purpose": p, "fields": f, "key": hkdf(KEY, canonical(p, *f)).hex()}
        for p, f in (("self-mask", ["a"]), ("self-mask", ["b"]), ("pair-mask", ["a", "b"]), ("pair-mask", ["ab", ""]))
    ]


def bound_cases() -> list[dict[str, object]]:
    return [
        {"numbers": ["0.5"], "exponent": 0},
        {"numbers": ["0.75", "-1.0"], "exponent": 1},
        {"numbers": ["-1023.9"], "exponent": 10},
        {"numbers": ["0.0", "-0.0"], "exponent": -960},
        {"numbers": ["1e-300"], "exponent": -960},
        {"numbers": ["1.0", "nan"], "failure": "UnusableUpdate"},
        {"numbers": ["-inf"], "failure": "UnusableUpdate"},
        {"numbers": ["1e300"], "failure": "UnusableUpdate"},
    ]


def mask_cases() -> list[dict[str, object]]:
    size = 20_000
    return [
        {
            "key": KEY.hex(),
            "precision": bits,
            "size": size,
            "sha256": hashlib.sha256(stream(KEY, size * bits // 8)).hexdigest(),
        }
        for bits in (64, 32)
    ]


PUBLISHED = {
    "hkdf": [
        {
            "secret": "0b" * 22,
            "salt": "000102030405060708090a0b0c",
            "info": "f0f1f2f3f4f5f6f7f8f9",
            "length": 42,
            "okm": "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        },
        {
            "secret": "0b" * 22,
            "salt": "",
            "info": "",
            "length": 42,
            "okm": "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
        },
    ],
    "aes256": {
        "key": "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
        "plain": "6bc1bee22e409f96e93d7e117393172a",
        "cipher": "f3eed1bdb5d2a03c064b5a7e3db181f8",
    },
    "x25519": {
        "private": "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
        "peer": "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
        "secret": "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
    },
    "seal": [
        {"key": "00" * 32, "plain": "", "sealed": "530f8afbc74536b9a963b4f1c4cb738b"},
        {
            "key": "00" * 32,
            "plain": "00" * 16,
            "sealed": "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919",
        },
    ],
}


if __name__ == "__main__":
    vectors = {
        "published": PUBLISHED,
        "canonical": canonical_cases(),
        "derive": derive_cases(),
        "bound": bound_cases(),
        "mask": mask_cases(),
    }
    sys.stdout.write(json.dumps(vectors, indent=1) + "\n")
