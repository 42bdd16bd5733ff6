"""The terms of a run that every member agrees to before the first key: run, spec, cohort, last round, precision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dcfpca.errors import BadInput
from dcfpca.secagg.fixed_cohort.domain_separation import digest, names_field

MOST_MEMBERS = 1 << 14


@dataclass(frozen=True)
class RunTerms:
    """The terms of a run, equal at all members. `cohort` is sorted, and every sum of the run is over all of it."""

    run: str
    spec_digest: bytes
    cohort: tuple[str, ...]
    last_round: int
    precision: int = 64

    def __post_init__(self) -> None:
        if list(self.cohort) != sorted(set(self.cohort)):
            raise BadInput("the cohort is not in order, or names a participant twice")
        if not 2 <= len(self.cohort) <= MOST_MEMBERS:
            raise BadInput(f"a cohort of {len(self.cohort)} has no secure sum", f"take 2 to {MOST_MEMBERS} members")
        if self.precision not in (32, 64):
            raise BadInput(f"a precision of {self.precision} bits does not exist", "choose 64 or 32")

    @cached_property
    def binding(self) -> bytes:
        """32 bytes that differ whenever anything about the run differs."""
        return digest("terms", self.run, self.spec_digest, names_field(self.cohort), self.last_round, self.precision)
