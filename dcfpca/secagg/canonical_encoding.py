"""One canonical encoding for everything that is signed, sealed, hashed or bound into a key.

A label, then every field with its length before it, so that no two different statements have the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

Field = bytes | str | int

LABEL = "dcfpca/v1/"


def canonical(purpose: str, *fields: Field) -> bytes:
    """The bytes of a statement: the label `dcfpca/v1/<purpose>` and the fields, each after its 4-byte length."""
    return length_prefixed(LABEL + purpose, *fields)


def length_prefixed(*fields: Field) -> bytes:
    """The fields, each after its 4-byte length. The first field is the label of a protocol version and a purpose."""
    # A round makes hundreds of these at either side, hence the plain loop.
    pieces: list[bytes] = []
    for field in fields:
        raw = field if isinstance(field, bytes) else _raw(field)
        pieces += (len(raw).to_bytes(4, "big"), raw)
    return b"".join(pieces)


def digest(purpose: str, *fields: Field) -> bytes:
    """SHA-256 of the canonical statement."""
    return hashlib.sha256(canonical(purpose, *fields)).digest()


def names_field(names: Iterable[str]) -> bytes:
    """A list of names as one field."""
    return canonical("names", *names)


def _raw(field: str | int) -> bytes:
    return field.encode() if isinstance(field, str) else field.to_bytes(8, "big", signed=True)
