"""The open attempt of a secure run in the types of `dcfpca.secagg`."""

from __future__ import annotations

from functools import lru_cache

from aggregator.run.state import Attempt, Run
from dcfpca import secagg
from dcfpca.attempt_ref import AttemptRef
from dcfpca.spec import RunSpec

# Below two the sum would be a single update; larger minimums are the policy of each site, which checks them itself.
MIN_COHORT = 2


def context_of(spec: RunSpec, run: Run, ref: AttemptRef) -> secagg.Context:
    """What every signature, key and mask of this attempt is bound to."""
    return secagg.Context(
        run=run.run_id,
        spec_digest=run.spec_sha256,
        round=ref.round,
        attempt=ref.attempt,
        cohort=run.cohort,
        threshold=spec.threshold_of(len(run.cohort)),
        min_cohort=MIN_COHORT,
        precision=spec.precision,
        consensus=run.attempt.consensus if run.attempt else b"",
    )


def closed_roster(spec: RunSpec, run: Run, attempt: Attempt) -> secagg.ClosedRoster:
    """The roster of an attempt that has one, with its neighbour graph."""
    return _closed(context_of(spec, run, attempt.ref), tuple(attempt.adverts[name] for name in attempt.roster))


def close_roster(spec: RunSpec, run: Run, attempt: Attempt) -> secagg.ClosedRoster:
    """The roster of everybody who advertised; raises BadMessage when they are too few or share a key."""
    adverts = tuple(attempt.adverts[name] for name in sorted(attempt.adverts))
    return _closed(context_of(spec, run, attempt.ref), adverts)


@lru_cache(maxsize=8)
def _closed(context: secagg.Context, adverts: tuple[secagg.Advert, ...]) -> secagg.ClosedRoster:
    """Cached by value: one roster serves the rules, the intake checks and all assignments of its attempt."""
    return secagg.close_roster(context, adverts)


def agreement_of(attempt: Attempt) -> secagg.Agreement:
    """Who masks, and the common exponent."""
    return secagg.Agreement(attempt.members, attempt.exponent)


def survivors_of(attempt: Attempt) -> secagg.Survivors:
    """Whose masked updates are in the sum."""
    return secagg.Survivors(attempt.survivors)


def delivery_to(attempt: Attempt, name: str) -> secagg.Delivery:
    """The agreement with the sealed shares addressed to this participant."""
    sealed = (
        secagg.SealedShare(sender, name, shares[name])
        for sender in attempt.members
        if name in (shares := attempt.shares[sender])
    )
    return secagg.delivery_for(agreement_of(attempt), name, sealed)


def unmask_request_to(closed: secagg.ClosedRoster, attempt: Attempt, name: str) -> secagg.UnmaskRequest:
    """The request for this survivor's shares, with the signatures of its neighbours."""
    given = {who: secagg.Attestation(who, signature) for who, signature in attempt.attestations.items()}
    return secagg.request_for(closed, survivors_of(attempt), name, given)
