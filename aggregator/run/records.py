"""Answers of participants that a run keeps, and the base of everything that is journaled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import ConfigDict

from dcfpca.secagg.fixed_cohort import Advert, Misfit, SealedShare
from dcfpca.secagg.fixed_cohort.context import NO_SUM


class Record:
    """Base of journaled data classes: bytes become base64 in JSON."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


@dataclass(frozen=True, slots=True)
class Consent(Record):
    """A participant's signed answer to the proposal, when it enrolled."""

    private: bool
    signature: bytes
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ExportAnswer(Record):
    """One participant's answer to an export request: (artifact, size, SHA-256) of each file received, or a refusal."""

    files: tuple[tuple[str, int, bytes], ...] = ()
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class StoredComplaint(Record):
    """What a participant signed about a run: whom it accuses (empty: nobody in particular) of what."""

    participant: str
    accused: str
    error: str
    sentence: str
    at: float
    certificate: bytes = field(default=b"", repr=False)
    signature: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedCohort(Record):
    """The secure sum of a run that waits for every member: its set-up, and what the open round is bound to.

    `roster` is the digest of all adverts once everybody has advertised. Adverts and shares are dropped when round 0 is
    summed: by then every member has completed its set-up. `ready` are those whose first update has shown it.
    `exponents` are those of the open round before its `misfits`, `stage` is its stage; `lifts` counts earlier misfits.
    `waiting` has the moment since which each late or absent member is awaited.
    """

    exponents: tuple[int, ...]
    adverts: Mapping[str, Advert] = field(default_factory=dict)
    shares: Mapping[str, tuple[SealedShare, ...]] = field(default_factory=dict)
    roster: bytes = b""
    ready: frozenset[str] = frozenset()
    previous_sum: bytes = NO_SUM
    misfits: tuple[Misfit, ...] = ()
    lifts: int = 0
    stage: int = 0
    waiting: Mapping[str, float] = field(default_factory=dict)
