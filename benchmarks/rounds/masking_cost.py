"""What the fixed-cohort secure sum costs one site: CPU seconds of this process, without network, disk or local step."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from statistics import median

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from dcfpca.secagg.aggregator import shares_for
from dcfpca.secagg.fixed_point import Block, BlockLayout
from dcfpca.secagg.keys import SigningIdentity
from dcfpca.secagg.messages import NO_SUM, Opening, Roster, RunTerms, consensus_digest
from dcfpca.secagg.site import ENTROPY_BYTES, SecureSite

_SIGNING = ec.ECDSA(SHA256())


@dataclass(frozen=True, slots=True)
class MaskingFigures:
    """CPU seconds of one site: to mask one update, and for the whole set-up of a run."""

    masking_cpu_s: float
    set_up_cpu_s: float


def measure_masking(participants: int, size: int, rounds: int = 10) -> MaskingFigures:
    """The median CPU of one site that masks `rounds` updates of `size` numbers, and that of its set-up.

    Masking is everything a secure round has and a plain one has not: fixed point, tag, the streams of all pairs and the
    ratchet of their roots. The other members exist for the set-up alone.
    """
    names = tuple(f"site-{index:04d}" for index in range(participants))
    terms = RunTerms("bench", bytes(32), names, rounds)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in names}
    sides = {name: _begin(terms, name, keys) for name in names}
    side, set_up = _set_up(terms, sides, keys)
    layout = BlockLayout((Block("tensor", size, 6),))
    seconds = []
    for round in range(rounds):
        vector = np.random.default_rng(round).standard_normal(size)
        opening = Opening(
            round,
            consensus_digest(hashlib.sha256(bytes([round]))),
            previous_sum=NO_SUM,
            layout=layout,
            exponents=layout.first_exponents,
        )
        began = time.process_time()
        side.answer(opening, vector)
        seconds.append(time.process_time() - began)
    return MaskingFigures(median(seconds), set_up)


def _begin(terms: RunTerms, name: str, keys: dict[str, ec.EllipticCurvePrivateKey]) -> SecureSite:
    own = keys[name]
    identity = SigningIdentity(
        name, name.encode(), lambda statement: own.sign(statement, _SIGNING), lambda _, who: keys[who].public_key()
    )
    return SecureSite.begin(terms, identity, os.urandom(ENTROPY_BYTES))


def _set_up(
    terms: RunTerms, sides: dict[str, SecureSite], keys: dict[str, ec.EllipticCurvePrivateKey]
) -> tuple[SecureSite, float]:
    """The first site, ready, and the CPU of its part."""
    first = sides[terms.cohort[0]]
    adverts = {name: side.advert() for name, side in sides.items()}
    roster: Roster = Roster(tuple(adverts[name] for name in sorted(adverts)))
    others = [share for name, side in sides.items() if side is not first for share in side.share(roster)]
    relayed = shares_for(first.name, others)
    began = time.process_time()
    first.share(roster)
    first.complete(roster, relayed)
    return first, time.process_time() - began
