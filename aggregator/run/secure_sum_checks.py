"""The secure sum as the run sees it: recorded messages as the protocol's own types, and the checks at intake."""

from __future__ import annotations

from aggregator.run import events
from aggregator.run.records import Keys
from aggregator.run.state import Round, Run
from dcfpca import secagg
from dcfpca.secagg.identity import Verify
from dcfpca.secagg.ring import check_exponent
from dcfpca.spec import RunSpec


def context_of(spec: RunSpec, digest: bytes, run: Run, round: int, attempt: int) -> secagg.Context:
    """What every signature, key and mask of this attempt is bound to."""
    return secagg.Context(
        run=run.run_id,
        spec_digest=digest,
        round=round,
        attempt=attempt,
        cohort=run.cohort,
        threshold=spec.threshold_of(len(run.cohort)),
        min_cohort=2,
        precision=spec.precision,
    )


def advert_of(name: str, keys: Keys) -> secagg.Advert:
    """Recorded keys as the protocol's advert."""
    return secagg.Advert(
        name=name,
        seal_key=keys.sealing_key,
        mask_key=keys.masking_key,
        commitment=keys.commitment,
        binding=keys.binding,
        certificate=keys.certificate,
        signature=keys.signature,
    )


def book_of(spec: RunSpec, digest: bytes, run: Run, round: Round) -> secagg.Book:
    """The closed roster of this attempt, with its neighbour graph."""
    context = context_of(spec, digest, run, round.round, round.attempt)
    return secagg.close_roster(context, [advert_of(name, round.keys[name]) for name in round.roster])


def agreement_of(round: Round) -> secagg.Agreement:
    """Who masks, and the common exponent."""
    return secagg.Agreement(round.members, round.exponent)


def survivors_of(round: Round) -> secagg.Survivors:
    """Whose masked updates are in the sum."""
    return secagg.Survivors(round.survivors)


def reveals_of(round: Round) -> list[secagg.Reveal]:
    """What the survivors released."""
    return [
        secagg.Reveal(
            name=name,
            seed_shares=tuple(secagg.Share(owner, value) for owner, value in reveal.survivor_shares),
            key_shares=tuple(secagg.Share(owner, value) for owner, value in reveal.dropout_shares),
        )
        for name, reveal in sorted(round.reveals.items())
    ]


def check_keys(spec: RunSpec, digest: bytes, run: Run, event: events.KeysAdvertised, verify: Verify) -> None:
    """Raise BadMessage unless the keys are signed for this attempt by the one who sends them."""
    context = context_of(spec, digest, run, event.round, event.attempt)
    secagg.accept_advert(context, advert_of(event.participant, event.keys), verify)


def check_shares(book: secagg.Book, event: events.SharesSent) -> None:
    """Raise BadMessage unless there is one sealed pair for each neighbour."""
    shares = [secagg.SealedShare(event.participant, to, sealed) for to, sealed in event.shares.items()]
    secagg.accept_shares(book, event.participant, shares)


def check_attestation(book: secagg.Book, round: Round, event: events.SurvivorsAttested, verify: Verify) -> None:
    """Raise BadMessage unless the signature is over the announced survivors."""
    attestation = secagg.Attestation(event.participant, event.signature)
    secagg.accept_attestation(book, agreement_of(round), survivors_of(round), attestation, verify)


def check_reveal(book: secagg.Book, round: Round, event: events.SharesRevealed) -> None:
    """Raise BadMessage unless exactly the wanted shares are released."""
    reveal = secagg.Reveal(
        name=event.participant,
        seed_shares=tuple(secagg.Share(owner, value) for owner, value in event.reveal.survivor_shares),
        key_shares=tuple(secagg.Share(owner, value) for owner, value in event.reveal.dropout_shares),
    )
    secagg.accept_reveal(book, agreement_of(round), survivors_of(round), reveal)


def check_bound(event: events.BoundStated) -> None:
    """Raise BadMessage unless fixed point has room for the stated exponent."""
    check_exponent(event.exponent)
