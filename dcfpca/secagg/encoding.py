"""One canonical encoding for everything that is signed, sealed, hashed or bound into a key.

A label, then every field with its length before it, so that no two different statements have the same bytes.

Statements and keys of the secure sum have labels `dcfpca/v2/<purpose>`, so that what is signed or derived for one
purpose serves no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

Field = bytes | str | int

LABEL = "dcfpca/v2/"
DERIVED_BYTES = 32


def canonical(purpose: str, *fields: Field, label: str = LABEL) -> bytes:
    """The bytes of a statement: its label, `dcfpca/v2/<purpose>` unless another is given, and the fields, each after
    its 4-byte length."""
    # A round makes hundreds of these at either side, hence the plain loop.
    pieces: list[bytes] = []
    for field in (label + purpose, *fields):
        if isinstance(field, str):
            field = field.encode()  # noqa: PLW2901  the field as bytes
        elif isinstance(field, int):
            field = field.to_bytes(8, "big", signed=True)  # noqa: PLW2901  the same
        pieces += (len(field).to_bytes(4, "big"), field)
    return b"".join(pieces)


def digest(purpose: str, *fields: Field) -> bytes:
    """SHA-256 of the canonical statement."""
    return hashlib.sha256(canonical(purpose, *fields)).digest()


def derive(secret: bytes, purpose: str, *bound: Field) -> bytes:
    """A single-purpose key: HKDF-SHA256 whose info is the canonical statement of the purpose and all that is bound."""
    return HKDF(SHA256(), DERIVED_BYTES, None, canonical(purpose, *bound)).derive(secret)


def names_field(names: Iterable[str]) -> bytes:
    """A list of names as one field."""
    return canonical("names", *names)
