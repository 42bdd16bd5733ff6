"""Checks on the messages of the secure sum at intake: each raises BadMessage when its message must not be accepted."""

from __future__ import annotations

from aggregator.run import events
from aggregator.run.secure_sum import agreement_of, closed_roster, context_of, survivors_of
from aggregator.run.state import Attempt, Run
from dcfpca import secagg
from dcfpca.errors import BadMessage
from dcfpca.secagg.identity import Verify
from dcfpca.secagg.ring_fixed_point import check_exponent
from dcfpca.spec import RunSpec


def check(spec: RunSpec, run: Run, event: events.RoundMessage, verify: Verify) -> None:
    """Raise BadMessage unless this message, which is in turn, follows the protocol. Updates are checked elsewhere."""
    match event:
        case events.KeysAdvertised():
            others = run.attempt.adverts.values() if run.attempt else ()
            secagg.accept_advert(context_of(spec, run, event.ref), event.advert, verify, others)
        case events.SharesSent():
            shares = [secagg.SealedShare(event.participant, to, sealed) for to, sealed in event.shares.items()]
            secagg.accept_shares(_roster(spec, run)[0], event.participant, shares)
        case events.BoundStated():
            check_exponent(event.exponent)
        case events.SurvivorsAttested():
            closed, attempt = _roster(spec, run)
            attestation = secagg.Attestation(event.participant, event.signature)
            secagg.accept_attestation(closed, agreement_of(attempt), survivors_of(attempt), attestation, verify)
        case events.SharesRevealed():
            closed, attempt = _roster(spec, run)
            secagg.accept_reveal(closed, agreement_of(attempt), survivors_of(attempt), event.reveal)
        case events.UpdateReceived():
            pass


def _roster(spec: RunSpec, run: Run) -> tuple[secagg.ClosedRoster, Attempt]:
    if run.attempt is None or not run.attempt.roster:
        raise BadMessage("the roster of this attempt is not closed")
    return closed_roster(spec, run, run.attempt), run.attempt
