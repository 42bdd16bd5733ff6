"""Damage to bytes of any format: bits flipped, ends cut off, pieces repeated or moved, words replaced by extremes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

_WORD = re.compile(rb'"[^"]*"|-?[0-9][0-9.eE+-]*|true|false|null|[A-Za-z_]{2,}')
_EXTREMES = (
    b"null",
    b"-1",
    b"0",
    b"1e309",
    b"NaN",
    b"[]",
    b"{}",
    b'""',
    b"true",
    b"9" * 400,
    b"[" * 5000,
    b'{"a":' * 3000,
    b"\xff\xfe",
    b'"\\ud800"',
    b"18446744073709551616",
    b'"../../etc/passwd"',
)


def damaged(draw: random.Random, body: bytes) -> bytes:
    """The bytes with something wrong somewhere; now and then they are right by chance."""
    for _ in range(draw.choice((1, 1, 2, 5))):
        body = draw.choice(_WAYS)(draw, body or b"\x00")
    return body


def _flip(draw: random.Random, body: bytes) -> bytes:
    wrong = bytearray(body)
    for _ in range(draw.choice((1, 2, 16))):
        wrong[draw.randrange(len(wrong))] ^= 1 << draw.randrange(8)
    return bytes(wrong)


def _cut(draw: random.Random, body: bytes) -> bytes:
    return body[: draw.randrange(len(body))] if draw.random() < 0.7 else body[draw.randrange(len(body)) :]


def _splice(draw: random.Random, body: bytes) -> bytes:
    begin = draw.randrange(len(body))
    piece = body[begin : begin + draw.choice((1, 4, 32, 300))]
    where = draw.randrange(len(body) + 1)
    return body[:where] + piece * draw.choice((1, 1, 3, 50)) + body[where:]


def _noise(draw: random.Random, body: bytes) -> bytes:
    where = draw.randrange(len(body))
    return body[:where] + draw.randbytes(draw.choice((1, 2, 8, 200))) + body[where + draw.choice((0, 1, 8)) :]


def _word(draw: random.Random, body: bytes) -> bytes:
    words = list(_WORD.finditer(body))
    if not words:
        return _flip(draw, body)
    found = draw.choice(words)
    other = draw.choice(_EXTREMES) if draw.random() < 0.6 else draw.choice(words).group()
    return body[: found.start()] + other + body[found.end() :]


_WAYS: tuple[Callable[[random.Random, bytes], bytes], ...] = (_flip, _cut, _splice, _noise, _word, _word)
