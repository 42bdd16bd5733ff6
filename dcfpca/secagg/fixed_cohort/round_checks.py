"""Checks before a site answers an opening: rounds increase, one opening per round, lifts only with signed misfits."""

from __future__ import annotations

from dcfpca.errors import BadIdentity
from dcfpca.secagg.errors import ChangedConsensus, ChangedExponent, PastLastRound, RoundPassed
from dcfpca.secagg.fixed_cohort.context import context_of, opening_digest
from dcfpca.secagg.fixed_cohort.exponents import MOST_LIFTS, check_exponents
from dcfpca.secagg.fixed_cohort.messages import Misfit, Opening
from dcfpca.secagg.fixed_cohort.run_terms import RunTerms
from dcfpca.secagg.fixed_cohort.state import SiteState
from dcfpca.secagg.identity import Verify, signed


def check_opening(terms: RunTerms, state: SiteState, opening: Opening, verify: Verify) -> None:
    """Raise the refusal that fits this opening in this state, if any."""
    _check_round(terms, state, opening)
    check_exponents(opening.layout, opening.exponents)
    if opening.round == state.round and opening_digest(terms, state.roster, opening) != state.opening:
        raise ChangedConsensus(f"round {opening.round} was opened with another consensus, sum, layout or exponent")
    _check_lifts(state, opening)
    for lifts, misfit in enumerate(opening.misfits):
        _check_misfit(terms, misfit, context_of(terms, state.roster, opening, lifts), verify)


def _check_round(terms: RunTerms, state: SiteState, opening: Opening) -> None:
    if opening.round > terms.last_round:
        raise PastLastRound(f"round {opening.round} is beyond the last of the spec, {terms.last_round}")
    if opening.round < max(state.round, 0):
        raise RoundPassed(f"round {opening.round} is over, this site has answered round {state.round}")


def _check_lifts(state: SiteState, opening: Opening) -> None:
    lifts, same = len(opening.misfits), opening.round == state.round
    if same and lifts < state.lifts:
        raise ChangedExponent(f"the exponents of round {opening.round} were raised {state.lifts} times already")
    before = state.lifts_before if same else state.lifts_before + state.lifts
    if before + lifts > MOST_LIFTS:
        raise ChangedExponent(f"the exponents of a run are raised at most {MOST_LIFTS} times")


def _check_misfit(terms: RunTerms, misfit: Misfit, context: bytes, verify: Verify) -> None:
    if misfit.name not in terms.cohort or misfit.context != context:
        raise ChangedExponent(f"the exponents are raised for a misfit of {misfit.name} that is not of this round")
    try:
        identity = verify(misfit.certificate, misfit.name)
    except BadIdentity as error:
        raise ChangedExponent(f"the misfit of {misfit.name} has no valid certificate: {error}") from error
    if not signed(identity, misfit.signature, misfit.statement()):
        raise ChangedExponent(f"{misfit.name} did not sign that its update does not fit")
