"""A participant's verified neighbours: their keys, and the secrets it shares with each."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from dcfpca.secagg.dropout_recovery.checks import check_advert, check_distinct_keys, check_members
from dcfpca.secagg.dropout_recovery.context import Context
from dcfpca.secagg.dropout_recovery.graph import Graph, graph_of
from dcfpca.secagg.dropout_recovery.keys import Secrets
from dcfpca.secagg.dropout_recovery.merkle import root_from_path
from dcfpca.secagg.dropout_recovery.messages import Advert, Roster, advert_leaf, roster_digest
from dcfpca.secagg.errors import ChangedRoster, InventedParticipant, SwappedKey
from dcfpca.secagg.identity import Verify
from dcfpca.secagg.keys import agree


@dataclass(frozen=True, slots=True)
class Peer:
    """One verified neighbour."""

    identity: EllipticCurvePublicKey
    seal_secret: bytes = field(repr=False)
    mask_secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The verified roster as one participant sees it; `peers` are its neighbours without itself."""

    members: frozenset[str]
    digest: bytes
    graph: Graph
    around: tuple[str, ...]
    peers: dict[str, Peer]


def verify_roster(context: Context, own: Advert, secrets: Secrets, roster: Roster, verify: Verify) -> Neighbours:
    """Verify the roster and agree on secrets with every neighbour; raises before anything is derived from a bad one."""
    check_members(context, roster.members, context.consented, "roster's members")
    if own.name not in roster.members:
        raise ChangedRoster(f"the roster leaves out {own.name}, to whom it was sent")
    digest = roster_digest(context, roster.members, roster.root)
    graph = graph_of(context, roster.members, digest)
    around = graph.neighbourhood(own.name)
    _check_own(own, roster)
    if sorted(advert.name for advert in roster.adverts) != sorted(around):
        raise InventedParticipant(f"the adverts are not those of the neighbourhood of {own.name}")
    check_distinct_keys(roster.adverts)
    peers = [advert for advert in roster.adverts if advert.name != own.name]
    identities = [check_advert(context, advert, verify) for advert in peers]
    return Neighbours(
        members=frozenset(roster.members),
        digest=digest,
        graph=graph,
        around=around,
        peers={
            advert.name: Peer(
                identity=identity,
                seal_secret=agree(secrets.seal, advert.seal_key, advert.name),
                mask_secret=agree(secrets.mask, advert.mask_key, advert.name),
            )
            for advert, identity in zip(peers, identities, strict=True)
        },
    )


def _check_own(own: Advert, roster: Roster) -> None:
    """The roster carries this participant's own keys unchanged, and they went into the root that seeds the graph."""
    relayed = [advert for advert in roster.adverts if advert.name == own.name]
    if [advert.statement() for advert in relayed] != [own.statement()]:
        raise SwappedKey(f"the roster does not carry the keys that {own.name} advertised")
    index = roster.members.index(own.name)
    if root_from_path(advert_leaf(own), index, len(roster.members), roster.path) != roster.root:
        raise SwappedKey(f"the roster's root was not made with the keys that {own.name} advertised")
