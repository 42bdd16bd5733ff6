"""The context of an attempt; every signature, key and mask is bound to it, so none is valid in another attempt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dcfpca.errors import BadInput
from dcfpca.secagg.canonical_encoding import digest, names_field


@dataclass(frozen=True)
class Context:
    """One attempt at one round of one run, as both sides know it before the first message.

    `cohort` is whom this participant consented to compute with, `threshold` the number of them without whom
    nothing is revealed, `min_cohort` the smallest sum this side accepts (its own policy, hence not bound). `consensus`
    is the SHA-256 of the consensus that the attempt answers.
    """

    run: str
    spec_digest: bytes
    round: int
    attempt: int
    cohort: tuple[str, ...]
    threshold: int
    min_cohort: int = 3
    precision: int = 64
    consensus: bytes = b""

    def __post_init__(self) -> None:
        if len(set(self.cohort)) != len(self.cohort):
            raise BadInput("the cohort names a participant twice")
        if not len(self.cohort) < 2 * self.threshold <= 2 * len(self.cohort):
            raise BadInput(
                f"a threshold of {self.threshold} does not suit a cohort of {len(self.cohort)}",
                f"choose one above {len(self.cohort) // 2} and at most {len(self.cohort)}",
            )
        if self.precision not in (32, 64):
            raise BadInput(f"a precision of {self.precision} bits does not exist", "choose 64 or 32")

    @cached_property
    def binding(self) -> bytes:
        """32 bytes that differ whenever anything about the attempt differs."""
        return digest(
            "context",
            self.run,
            self.spec_digest,
            self.round,
            self.attempt,
            names_field(sorted(self.cohort)),
            self.threshold,
            self.precision,
            self.consensus,
        )

    @cached_property
    def consented(self) -> frozenset[str]:
        """The cohort, for membership tests."""
        return frozenset(self.cohort)
