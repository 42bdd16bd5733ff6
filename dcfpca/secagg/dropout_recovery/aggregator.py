"""The aggregator's side: checks messages and selects what to relay. Stateless; the run keeps the messages.

Every function takes the closed roster with the sets reached so far, and either answers or raises a BadMessage; whether
to reject one participant's message or to reopen the round is the caller's decision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from dcfpca.secagg import ring_fixed_point
from dcfpca.secagg.dropout_recovery import checks, merkle
from dcfpca.secagg.dropout_recovery.checks import (
    check_advert,
    check_distinct_keys,
    check_members,
    check_neighbourhood,
)
from dcfpca.secagg.dropout_recovery.context import Context
from dcfpca.secagg.dropout_recovery.graph import Graph, graph_of
from dcfpca.secagg.dropout_recovery.messages import (
    Advert,
    Agreement,
    Attestation,
    Delivery,
    Reveal,
    Roster,
    SealedShare,
    Survivors,
    UnmaskRequest,
    advert_leaf,
    agreement_digest,
    roster_digest,
    survivors_statement,
)
from dcfpca.secagg.dropout_recovery.shamir import SHARE_BYTES
from dcfpca.secagg.errors import InventedParticipant, TamperedShare
from dcfpca.secagg.identity import Verify

SEALED_BYTES = 2 * SHARE_BYTES + 16


@dataclass(frozen=True, slots=True)
class ClosedRoster:
    """The members that advertised in time, and the masking graph over them."""

    context: Context
    adverts: Mapping[str, Advert]
    members: tuple[str, ...]
    root: bytes
    digest: bytes
    graph: Graph
    _paths: tuple[tuple[bytes, ...], ...] = field(repr=False)

    def path(self, name: str) -> tuple[bytes, ...]:
        """The Merkle path from a member's advert to the root."""
        return self._paths[self.members.index(name)]


def accept_advert(context: Context, advert: Advert, verify: Verify, others: Iterable[Advert] = ()) -> None:
    """Raise unless the advert may stand in the roster with the others; peers will check the same."""
    check_advert(context, advert, verify)
    check_distinct_keys([*(other for other in others if other.name != advert.name), advert])


def close_roster(context: Context, adverts: Iterable[Advert]) -> ClosedRoster:
    """The roster of these accepted adverts; raises when they are too few."""
    by_name = {advert.name: advert for advert in sorted(adverts, key=lambda advert: advert.name)}
    members = tuple(by_name)
    check_members(context, members, context.consented, "roster's members")
    check_distinct_keys(by_name.values())
    leaves = [advert_leaf(advert) for advert in by_name.values()]
    root = merkle.root_of(leaves)
    digest = roster_digest(context, members, root)
    graph = graph_of(context, members, digest)
    return ClosedRoster(context, by_name, members, root, digest, graph, merkle.paths_of(leaves))


def roster_for(closed: ClosedRoster, name: str) -> Roster:
    """The roster for one member: all members, and the adverts of its neighbourhood."""
    around = sorted(closed.graph.neighbourhood(name))
    return Roster(closed.members, closed.root, closed.path(name), tuple(closed.adverts[peer] for peer in around))


def accept_shares(closed: ClosedRoster, sender: str, shares: Collection[SealedShare]) -> None:
    """Raise unless these are one sealed share for each neighbour of the sender."""
    expected = sorted(peer for peer in closed.graph.neighbourhood(sender) if peer != sender)
    if sorted(share.receiver for share in shares) != expected or {share.sender for share in shares} - {sender}:
        raise TamperedShare(f"the shares of {sender} are not one for each of its {len(expected)} neighbours")
    if any(len(share.sealed) != SEALED_BYTES for share in shares):
        raise TamperedShare(f"a sealed share of {sender} does not have {SEALED_BYTES} bytes")


def agree(closed: ClosedRoster, shared: Collection[str], bounds: Mapping[str, int]) -> Agreement:
    """The masking participants (those who shared and stated a bound) and the common exponent."""
    members = tuple(sorted(set(shared) & bounds.keys()))
    check_members(closed.context, members, closed.adverts, "masking participants")
    _check_neighbourhoods(closed, members, "masking participants")
    exponent = max(bounds[name] for name in members)
    ring_fixed_point.check_exponent(exponent)
    return Agreement(members, exponent)


def delivery_for(agreement: Agreement, name: str, shares: Iterable[SealedShare]) -> Delivery:
    """The delivery for one masking participant: of all these shares, those it must hold."""
    masking = frozenset(agreement.members)
    return Delivery(agreement, tuple(s for s in shares if s.receiver == name and s.sender in masking))


def close_survivors(closed: ClosedRoster, agreement: Agreement, delivered: Collection[str]) -> Survivors:
    """The survivors: whose masked updates are in the sum; raises when they are too few to go on."""
    members = tuple(sorted(delivered))
    check_members(closed.context, members, agreement.members, "survivors")
    _check_neighbourhoods(closed, members, "survivors")
    return Survivors(members)


def accept_attestation(
    closed: ClosedRoster, agreement: Agreement, survivors: Survivors, attestation: Attestation, verify: Verify
) -> None:
    """Raise unless a survivor signed exactly these survivors."""
    if attestation.name not in survivors.members:
        raise InventedParticipant(f"{attestation.name} signed the survivors without being one")
    identity = verify(closed.adverts[attestation.name].certificate, attestation.name)
    statement = survivors_statement(agreement_digest(closed.digest, agreement), survivors)
    checks.check_attestation(identity, attestation, statement)


def enough(closed: ClosedRoster, wanted_for: Iterable[str], present: Collection[str]) -> bool:
    """True if, for each of these, a threshold of its neighbourhood is present.

    Attestations suffice to request shares when they are enough for the survivors; reveals suffice to unmask when they
    are enough for all masking participants.
    """
    around = (closed.graph.neighbourhood(name) for name in wanted_for)
    return all(sum(1 for peer in peers if peer in present) >= closed.graph.threshold for peers in around)


def request_for(
    closed: ClosedRoster, survivors: Survivors, name: str, attestations: Mapping[str, Attestation]
) -> UnmaskRequest:
    """The request for one survivor's shares, with the signatures of its neighbourhood under the same set of survivors.

    It counts itself, so a threshold less one of the others' signatures is enough to show, and to verify.
    """
    around = sorted(peer for peer in closed.graph.neighbourhood(name) if peer in attestations and peer != name)
    return UnmaskRequest(survivors, tuple(attestations[peer] for peer in around[: closed.graph.threshold - 1]))


def accept_reveal(closed: ClosedRoster, agreement: Agreement, survivors: Survivors, reveal: Reveal) -> None:
    """Raise unless these are the shares that were asked of this survivor."""
    if reveal.name not in survivors.members:
        raise InventedParticipant(f"{reveal.name} released shares without being a survivor")
    alive = frozenset(survivors.members)
    masking = frozenset(agreement.members)
    owners = sorted(peer for peer in closed.graph.neighbourhood(reveal.name) if peer in masking)
    if [share.owner for share in reveal.seed_shares] != [owner for owner in owners if owner in alive]:
        raise TamperedShare(f"{reveal.name} did not release one seed share for each surviving neighbour")
    if [share.owner for share in reveal.key_shares] != [owner for owner in owners if owner not in alive]:
        raise TamperedShare(f"{reveal.name} did not release one key share for each dropped neighbour")


def _check_neighbourhoods(closed: ClosedRoster, members: tuple[str, ...], what: str) -> None:
    present = frozenset(members)
    for name in members:
        check_neighbourhood(closed.graph, name, present, what)
