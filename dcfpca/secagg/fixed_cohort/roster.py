"""The roster of a run, and the checks that both sides make of it."""

from __future__ import annotations

from collections.abc import Collection

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from dcfpca.errors import BadIdentity
from dcfpca.secagg.errors import IncompleteCohort, InventedParticipant, ReplayedKey, SwappedKey
from dcfpca.secagg.fixed_cohort.domain_separation import canonical, digest
from dcfpca.secagg.fixed_cohort.messages import Advert, Roster
from dcfpca.secagg.fixed_cohort.run_terms import RunTerms
from dcfpca.secagg.identity import Verify, signed
from dcfpca.secagg.keys import KEY_BYTES, check_usable


def check_advert(terms: RunTerms, advert: Advert, verify: Verify) -> EllipticCurvePublicKey:
    """The owner's identity key, after checking that the owner advertised this usable key for this run."""
    name = advert.name
    if name not in terms.cohort:
        raise InventedParticipant(f"{name} is not in the cohort of run {terms.run}")
    if advert.binding != terms.binding:
        raise ReplayedKey(f"the key of {name} was advertised for another run, spec or cohort", accused=name)
    if {len(advert.key), len(advert.commitment)} != {KEY_BYTES}:
        raise SwappedKey(f"the key and the commitment of {name} do not have 32 bytes each", accused=name)
    try:
        identity = verify(advert.certificate, name)
    except BadIdentity as error:
        raise InventedParticipant(f"{name} has no valid certificate: {error}", error.hint) from error
    if not signed(identity, advert.signature, advert.statement()):
        raise SwappedKey(f"the key relayed for {name} is not the one it signed")
    check_usable(advert.key, name)
    return identity


def check_roster(terms: RunTerms, roster: Roster, verify: Verify) -> dict[str, EllipticCurvePublicKey]:
    """Everybody's identity key, after checking that the roster is exactly the cohort, with a key of its own each."""
    names = tuple(advert.name for advert in roster.adverts)
    if names != terms.cohort:
        raise IncompleteCohort(_difference(terms, names), "a run without a member is a new run, with a new consent")
    identities = {advert.name: check_advert(terms, advert, verify) for advert in roster.adverts}
    check_distinct(roster.adverts)
    return identities


def check_distinct(adverts: Collection[Advert]) -> None:
    """Raise if a key or commitment occurs twice."""
    seen: dict[bytes, str] = {}
    for advert in adverts:
        for value in (advert.key, advert.commitment):
            if value in seen:
                sentence = f"{advert.name} advertises a key that {seen[value]} advertised too"
                raise ReplayedKey(sentence, accused=advert.name)
            seen[value] = advert.name


def roster_digest(terms: RunTerms, roster: Roster) -> bytes:
    """The digest of the run and of every key and commitment of its members."""
    each = (canonical("member", advert.name, advert.key, advert.commitment) for advert in roster.adverts)
    return digest("roster", terms.binding, *each)


def _difference(terms: RunTerms, names: tuple[str, ...]) -> str:
    if missing := set(terms.cohort) - set(names):
        return f"the roster of run {terms.run} lacks {', '.join(sorted(missing))}, whom this site consented to"
    if foreign := set(names) - set(terms.cohort):
        return f"the roster of run {terms.run} has {', '.join(sorted(foreign))}, whom this site did not consent to"
    return f"the roster of run {terms.run} is not in order, or names somebody twice"
