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
    return b"".join(_prefixed(field) for field in (LABEL + purpose, *fields))


def digest(purpose: str, *fields: Field) -> bytes:
    """SHA-256 of the canonical statement."""
    return hashlib.sha256(canonical(purpose, *fields)).digest()


def names_field(names: Iterable[str]) -> bytes:
    """A list of names as one field."""
    return canonical("names", *names)


def _prefixed(field: Field) -> bytes:
    match field:
        case bytes():
            raw = field
        case str():
            raw = field.encode()
        case int():
            raw = field.to_bytes(8, "big", signed=True)
    return len(raw).to_bytes(4, "big") + raw
