"""The context of a round: a digest of everything the aggregator sent, which is bound into every mask."""

from __future__ import annotations

import hashlib

import numpy as np

from dcfpca.secagg.fixed_cohort.domain_separation import canonical, digest
from dcfpca.secagg.fixed_cohort.exponents import lifted
from dcfpca.secagg.fixed_cohort.messages import Opening
from dcfpca.secagg.fixed_cohort.run_terms import RunTerms
from dcfpca.secagg.ring_fixed_point import RingArray

NO_SUM = bytes(32)
"""Stands for the previous sum in a round that has none."""


def opening_digest(terms: RunTerms, roster: bytes, opening: Opening) -> bytes:
    """The digest of the run, the roster and the round with its consensus, previous sum, layout and first exponents."""
    return digest(
        "opening",
        terms.run,
        terms.spec_digest,
        roster,
        opening.round,
        opening.consensus,
        opening.previous_sum,
        opening.layout.field(),
        canonical("exponents", *opening.exponents),
    )


def context_of(terms: RunTerms, roster: bytes, opening: Opening, lifts: int) -> bytes:
    """The digest of the opening and of the exponents after `lifts` lifts."""
    exponents = lifted(opening.layout, opening.exponents, lifts, terms.precision)
    return digest("context", opening_digest(terms, roster, opening), canonical("exponents", *exponents))


def consensus_digest(consensus: hashlib._Hash, *told: bytes) -> bytes:
    """The digest of a consensus and of what is told beside it, given a SHA-256 over its bytes, which stays as it is."""
    whole = consensus.copy()
    for part in told:
        whole.update(part)
    return digest("consensus", whole.digest())


def sum_digest(context: bytes, total_sha256: bytes, tag: int) -> bytes:
    """The digest of an opened sum with its tag; the next opening carries it as `previous_sum`."""
    return digest("sum", context, total_sha256, tag)


def values_sha256(values: RingArray) -> bytes:
    """SHA-256 of the residues of a sum."""
    return hashlib.sha256(np.ascontiguousarray(values).data).digest()
