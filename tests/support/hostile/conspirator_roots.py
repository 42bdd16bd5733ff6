"""What conspirators know of the masks of honest sites: the roots of the pairs that they are in."""

from __future__ import annotations

from collections.abc import Iterable

from dcfpca.secagg import masks, set_up
from dcfpca.secagg.errors import SecureSumRefusal
from dcfpca.secagg.messages import Roster, SealedShare
from dcfpca.secagg.site import SecureSite


class ConspiratorRoots:
    """Opens every share that is addressed to a conspirator, and keeps the roots of all rounds that come of it."""

    def __init__(self, last_round: int) -> None:
        self.known: set[bytes] = set()
        self._rounds = last_round + 1
        self._clones: list[tuple[SecureSite, Roster]] = []
        self._tried: set[tuple[int, bytes]] = set()

    def join(self, clone: SecureSite, roster: Roster) -> None:
        """A conspirator that has adopted this roster, and shares as an honest site would."""
        self._clones.append((clone, roster))

    def learn(self, shares: Iterable[SealedShare]) -> None:
        """Everything that these shares tell the conspirators."""
        for share in shares:
            for number, (clone, roster) in enumerate(self._clones):
                if share.receiver == clone.name and (number, share.signature) not in self._tried:
                    self._tried.add((number, share.signature))
                    self._open(clone, roster, share)

    def _open(self, clone: SecureSite, roster: Roster, share: SealedShare) -> None:
        place = clone.terms.cohort.index(share.sender)
        agreement, advert = clone.state.roots[place], roster.adverts[place]
        own, binding = set_up.kem_key(clone.state.private_key), clone.terms.binding
        try:
            _, part = set_up.open_share(share, agreement, own, binding, advert.commitment)
        except SecureSumRefusal:
            return
        mine = masks.pair_part(clone.state.private_key, clone.state.roster, share.sender)
        root = masks.pair_root(agreement, {clone.name: mine, share.sender: part})
        for _ in range(self._rounds):
            self.known.add(root)
            root = masks.ratchet(root, 1)
