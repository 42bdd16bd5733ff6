"""The open round of a secure run in the types of `dcfpca.secagg`, and the checks of its messages at intake.

A check raises BadMessage when its message must not be accepted; what is out of turn is left to the rules.
"""

from __future__ import annotations

from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from aggregator.run import events
from aggregator.run.state import Run, SecureSum, opened, opening_of
from dcfpca.errors import BadIdentity, BadMessage
from dcfpca.secagg import messages
from dcfpca.secagg.aggregator import accept_advert, accept_shares
from dcfpca.secagg.keys import Verify, signed
from dcfpca.secagg.messages import Complaint, Misfit, Roster, RunTerms
from dcfpca.secagg.set_up import roster_digest
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms

MOST_SENTENCE, MOST_ERROR = 2000, 100
"""The most characters of a complaint's sentence and of the name of its error."""


def begin(terms: Terms) -> SecureSum:
    """The state in which the set-up of a run begins."""
    first = terms.method.stages[0].name
    return SecureSum(exponents=terms.blocks[first].first_exponents, stage=first)


def terms_of(spec: RunSpec, run: Run) -> RunTerms:
    """What every member of the run's cohort agreed to."""
    return _terms(run.run_id, run.spec_sha256, run.cohort, spec.last_round, spec.precision)


@lru_cache(maxsize=64)
def _terms(run: str, spec: bytes, cohort: tuple[str, ...], last_round: int, precision: int) -> RunTerms:
    return RunTerms(run, spec, cohort, last_round, precision)


def roster_of(spec: RunSpec, run: Run, fixed: SecureSum) -> bytes:
    """The digest of the adverts of the whole cohort; each was checked when it was accepted."""
    return roster_digest(terms_of(spec, run), full_roster(fixed))


def full_roster(fixed: SecureSum) -> Roster:
    """The adverts in the order of names."""
    return Roster(tuple(fixed.adverts[name] for name in sorted(fixed.adverts)))


def context_of(terms: Terms, run: Run, consensus: bytes) -> bytes:
    """What every update of the open attempt is masked for; `consensus` is its digest as it is announced."""
    opening = opening_of(terms, run, consensus)
    return messages.context_of(terms_of(terms.spec, run), opened(run)[0].roster, opening, len(opening.misfits))


def check_set_up(spec: RunSpec, run: Run, event: events.SetUpMessage, verify: Verify) -> None:
    """Refuse a key or shares, sent in turn, that would spoil the set-up for the others."""
    bound, _ = opened(run)
    if isinstance(event, events.RunKeyAdvertised):
        accept_advert(terms_of(spec, run), bound.adverts, event.run_key, verify)
        return
    advert = bound.adverts[event.participant]
    identity = _verified(verify, advert.certificate, advert.name)
    accept_shares(bound.roster, run.cohort, event.participant, identity, event.shares)


def check_misfit(terms: Terms, run: Run, consensus: bytes, misfit: Misfit, verify: Verify) -> None:
    """A member signed that its update does not fit under the exponents of the open attempt."""
    if misfit.context != context_of(terms, run, consensus):
        raise BadMessage("the misfit is about another round, consensus or exponent than the open one")
    identity = _verified(verify, misfit.certificate, misfit.name)
    if not signed(identity, misfit.signature, misfit.statement()):
        raise BadMessage(f"{misfit.name} did not sign that its update does not fit")


def check_complaint(spec: RunSpec, run: Run, event: events.Complained, verify: Verify) -> None:
    """A member of the cohort signed this complaint about this run."""
    if len(event.sentence) > MOST_SENTENCE or not 0 < len(event.error) <= MOST_ERROR:
        raise BadMessage("the complaint is too long, or does not name its error")
    if len(run.cohort) < 2:
        raise BadMessage("the run has no cohort yet")
    complaint = Complaint(
        event.participant, event.accused, event.error, event.sentence, event.certificate, event.signature
    )
    try:
        messages.check_complaint(terms_of(spec, run), complaint, verify)
    except BadIdentity as error:
        raise BadMessage(f"{event.participant} has no valid certificate: {error}") from error


def _verified(verify: Verify, certificate: bytes, name: str) -> EllipticCurvePublicKey:
    try:
        return verify(certificate, name)
    except BadIdentity as error:
        raise BadMessage(f"{name} has no valid certificate: {error}") from error
