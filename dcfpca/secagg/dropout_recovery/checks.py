"""Checks that both sides make before they act on a message."""

from __future__ import annotations

from collections.abc import Collection

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from dcfpca.errors import BadIdentity
from dcfpca.secagg.dropout_recovery.context import Context
from dcfpca.secagg.dropout_recovery.graph import Graph
from dcfpca.secagg.dropout_recovery.messages import Advert, Attestation
from dcfpca.secagg.errors import (
    BelowThreshold,
    CohortTooSmall,
    InconsistentSurvivors,
    InventedParticipant,
    ReplayedKey,
    SwappedKey,
)
from dcfpca.secagg.identity import Verify, signed
from dcfpca.secagg.keys import KEY_BYTES, check_usable


def check_advert(context: Context, advert: Advert, verify: Verify) -> EllipticCurvePublicKey:
    """The owner's identity key, after checking that the owner advertised these keys for this attempt."""
    if advert.name not in context.consented:
        raise InventedParticipant(f"{advert.name} is not in the cohort of run {context.run}")
    if advert.binding != context.binding:
        raise ReplayedKey(f"the keys of {advert.name} were advertised for another run, round or attempt")
    if {len(advert.seal_key), len(advert.mask_key), len(advert.commitment)} != {KEY_BYTES}:
        raise SwappedKey(f"the keys of {advert.name} do not have 32 bytes each")
    try:
        identity = verify(advert.certificate, advert.name)
    except BadIdentity as error:
        raise InventedParticipant(f"{advert.name} has no valid certificate: {error}", error.hint) from error
    if not signed(identity, advert.signature, advert.statement()):
        raise SwappedKey(f"the keys relayed for {advert.name} are not the ones it signed")
    for key in (advert.seal_key, advert.mask_key):
        check_usable(key, advert.name)
    return identity


def check_distinct_keys(adverts: Collection[Advert]) -> None:
    """Raise if a key occurs under two names or for two purposes."""
    seen: dict[bytes, str] = {}
    for advert in adverts:
        for key in (advert.seal_key, advert.mask_key, advert.commitment):
            if key in seen:
                raise ReplayedKey(f"{advert.name} advertises a key that {seen[key]} advertised too")
            seen[key] = advert.name


def check_members(context: Context, members: tuple[str, ...], among: Collection[str], what: str) -> None:
    """Raise unless the list is sorted, without repeats, of known names, and large enough for policy and threshold."""
    if list(members) != sorted(set(members)):
        raise InventedParticipant(f"the {what} are not in order, or name somebody twice")
    if unknown := set(members) - set(among):
        raise InventedParticipant(f"the {what} include {min(unknown)}, whose keys were never verified")
    if len(members) < context.min_cohort:
        raise CohortTooSmall(
            f"the {what} are {len(members)}, policy demands at least {context.min_cohort}",
            "wait for more participants, or lower min_cohort if the sites agree",
        )
    if len(members) < context.threshold:
        raise BelowThreshold(
            f"the {what} are {len(members)}, the threshold is {context.threshold}", "the round must be reopened"
        )


def check_neighbourhood(graph: Graph, name: str, members: Collection[str], what: str) -> None:
    """Raise unless a threshold of the participant's neighbourhood is among the members."""
    left = sum(1 for neighbour in graph.neighbourhood(name) if neighbour in members)
    if left < graph.threshold:
        raise BelowThreshold(
            f"{left} of the neighbourhood of {name} are among the {what}, the threshold is {graph.threshold}",
            "the round must be reopened",
        )


def check_attestation(identity: EllipticCurvePublicKey, attestation: Attestation, statement: bytes) -> None:
    """Raise unless the participant signed exactly these survivors."""
    if not signed(identity, attestation.signature, statement):
        raise InconsistentSurvivors(f"{attestation.name} did not sign the survivors shown here")
