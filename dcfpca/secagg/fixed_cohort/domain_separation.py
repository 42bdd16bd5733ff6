"""Domain separation of the fixed-cohort protocol (v2): encoding, digests, keys under labels `dcfpca/v2/<purpose>`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from dcfpca.secagg.canonical_encoding import Field, length_prefixed
from dcfpca.secagg.keys import hkdf

LABEL = "dcfpca/v2/"


def canonical(purpose: str, *fields: Field) -> bytes:
    """The bytes of a statement: the label `dcfpca/v2/<purpose>` and the fields, each after its 4-byte length."""
    return length_prefixed(LABEL + purpose, *fields)


def digest(purpose: str, *fields: Field) -> bytes:
    """SHA-256 of the canonical statement."""
    return hashlib.sha256(canonical(purpose, *fields)).digest()


def derive(secret: bytes, purpose: str, *bound: Field) -> bytes:
    """A single-purpose key: HKDF-SHA256 whose info is the canonical statement of the purpose and all that is bound."""
    return hkdf(secret, canonical(purpose, *bound))


def names_field(names: Iterable[str]) -> bytes:
    """A list of names as one field."""
    return canonical("names", *names)
