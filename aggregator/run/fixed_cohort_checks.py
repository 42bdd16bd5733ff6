"""Checks on the messages of a fixed cohort at intake: each raises BadMessage when its message must not be accepted."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from aggregator.run import events
from aggregator.run.fixed_cohort import context_of, terms_of
from aggregator.run.records import FixedCohort
from aggregator.run.state import Phase, Run, Status
from dcfpca.errors import BadIdentity, BadMessage
from dcfpca.secagg import fixed_cohort as secure
from dcfpca.secagg.fixed_cohort.homomorphic_mac import P
from dcfpca.secagg.identity import Verify, signed
from dcfpca.spec import RunSpec

MOST_SENTENCE, MOST_ERROR = 2000, 100
"""The most characters of a complaint's sentence and of the name of its error."""


def is_in_turn(run: Run, event: events.SetUpMessage) -> bool:
    """Whether the run is in the phase that this message belongs to, so that it can be checked."""
    if run.fixed_cohort is None or run.attempt is None or run.status is not Status.RUNNING:
        return False
    phase = Phase.ADVERTISING if isinstance(event, events.RunKeyAdvertised) else Phase.SHARING
    return run.attempt.phase is phase and event.participant in run.cohort


def check_set_up(spec: RunSpec, run: Run, event: events.SetUpMessage, verify: Verify) -> None:
    """Refuse a key or shares that would spoil the set-up for the others. What is out of turn is left to the rules."""
    if run.fixed_cohort is None or not is_in_turn(run, event):
        return
    match event:
        case events.RunKeyAdvertised():
            secure.accept_advert(terms_of(spec, run), run.fixed_cohort.adverts, event.run_key, verify)
        case events.GroupSecretShared():
            _check_shares(run, run.fixed_cohort, event, verify)


def _check_shares(run: Run, fixed: FixedCohort, event: events.GroupSecretShared, verify: Verify) -> None:
    advert = fixed.adverts[event.participant]
    identity = _verified(verify, advert.certificate, advert.name)
    secure.accept_shares(fixed.roster, run.cohort, event.participant, identity, event.shares)


def check_update(spec: RunSpec, run: Run, told: bytes, context: bytes, tag: int) -> None:
    """The update is masked for the open attempt, as all others in its sum are."""
    if context != context_of(spec, run, told):
        raise BadMessage(
            "the update is masked for another round, consensus, previous sum or exponent than the open one"
        )
    if not 0 <= tag < P:
        raise BadMessage("the tag of the update is not in the field")


def check_misfit(spec: RunSpec, run: Run, told: bytes, misfit: secure.Misfit, verify: Verify) -> None:
    """A member signed that its update does not fit under the exponents of the open attempt."""
    if misfit.context != context_of(spec, run, told):
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
    complaint = secure.Complaint(
        event.participant, event.accused, event.error, event.sentence, event.certificate, event.signature
    )
    try:
        secure.check_complaint(terms_of(spec, run), complaint, verify)
    except BadIdentity as error:
        raise BadMessage(f"{event.participant} has no valid certificate: {error}") from error


def _verified(verify: Verify, certificate: bytes, name: str) -> EllipticCurvePublicKey:
    try:
        return verify(certificate, name)
    except BadIdentity as error:
        raise BadMessage(f"{name} has no valid certificate: {error}") from error
