"""The protocol version, message and cohort sizes, metadata keys and file names that both sides of the wire share."""

from __future__ import annotations

PROTOCOL = 4
"""Version of the wire protocol; both sides must have the same."""

CHUNK_BYTES = 1 << 20
"""Largest chunk of a tensor or file in one message; far below gRPC's 4 MiB limit."""

MESSAGE_BYTES = (4 << 20) - (64 << 10)
"""Largest tensor in one message: gRPC's limit of 4 MiB, less what goes beside it."""

AT_ONCE_BYTES = 64 << 20
"""The largest total of a cohort's tensors that are sent in one message each although each exceeds a chunk."""

SMALL_SUM = 1 << 18
"""A round's sum of up to this size is sent to every member together with the next consensus."""

TURNS_ABOVE = 64
"""In a larger cohort an update's header is sent first, and its bytes when the aggregator has a slot for them."""

STANDBY = "dcfpca-standby"
"""Key in the trailing metadata of a health check that a standby answers: who serves meanwhile."""

CONSENSUS_WANTED = "dcfpca-consensus-wanted"
"""Key in the trailing metadata of a refused subscription: the run whose consensus the site is to bring along."""

ARTIFACTS = ("L.npy", "S.npz")
"""The files of a site's reconstruction that an operator may ask for."""
