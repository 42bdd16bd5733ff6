"""Constants of the wire protocol that both sides must agree on."""

from __future__ import annotations

PROTOCOL = 1
"""Version of the wire protocol; both sides must speak the same."""

CHUNK_BYTES = 1 << 20
"""Largest piece of a tensor or file in one message; far below gRPC's 4 MiB limit."""

INLINE_BYTES = 1 << 20
"""A consensus up to this size rides in the assignment itself and saves a call."""

WHOLE = "dcfpca-whole"
"""Under this key a stream's first metadata say up to how many bytes an update may come in one message."""

TURNS = "dcfpca-turns"
"""Under this key a stream's first metadata say in how large a cohort an update may be sent without waiting its turn."""
