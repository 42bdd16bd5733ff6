"""What a site keeps when it catches the aggregator in something untrue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """Two digests that should be one. `context` is the digest of the opening that the site answered in `round`, which
    names run, roster, consensus, sum before, layout and exponents."""

    round: int
    context: bytes
    announced: bytes
    found: bytes
