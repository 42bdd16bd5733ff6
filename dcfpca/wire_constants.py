"""The protocol version, message sizes and metadata keys that both sides of the wire share."""

from __future__ import annotations

PROTOCOL = 2
"""Version of the wire protocol; both sides must have the same."""

CHUNK_BYTES = 1 << 20
"""Largest chunk of a tensor or file in one message; far below gRPC's 4 MiB limit."""

INLINE_BYTES = 1 << 20
"""A consensus of up to this size is sent inside the assignment, which saves a call."""

SMALL_SUM = 1 << 16
"""The sum of a round of up to this size is sent to every member with the next one, beside the consensus."""

WHOLE = "dcfpca-whole"
"""Key in a stream's initial metadata: the most bytes an update may have to be sent in one message."""

TURNS = "dcfpca-turns"
"""Key in a stream's initial metadata: the largest cohort in which updates are sent without waiting for a slot."""

STANDBY = "dcfpca-standby"
"""Key in the trailing metadata of a health check that a standby answers: who serves meanwhile."""
