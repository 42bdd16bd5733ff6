"""The group secret: a hash over one random share of every member, which the aggregator does not learn.

Shares are committed to in the adverts and sent only to holders of the complete roster, so nobody chooses its share
after seeing another's: the secret is uniform if one member is honest, and may seed the neighbour graph.
"""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from dcfpca.secagg.errors import TamperedShare
from dcfpca.secagg.fixed_cohort.domain_separation import canonical, digest
from dcfpca.secagg.fixed_cohort.messages import SealedShare
from dcfpca.secagg.fixed_cohort.pair_roots import sealing_key
from dcfpca.secagg.identity import Sign, signed
from dcfpca.secagg.keys import KEY_BYTES, seal, unseal

SEALED_BYTES = KEY_BYTES + 16


def commitment(binding: bytes, name: str, share: bytes) -> bytes:
    """The commitment to a member's share, published before it sees the others' shares."""
    return digest("share-commitment", binding, name, share)


def seal_share(roster: bytes, root: bytes, sender: str, receiver: str, share: bytes, sign: Sign) -> SealedShare:
    """The sender's share for one receiver."""
    sealed = seal(sealing_key(root, sender, receiver), share)
    return SealedShare(sender, receiver, sealed, sign(share_statement(roster, sender, receiver, sealed)))


def share_statement(roster: bytes, sender: str, receiver: str, sealed: bytes) -> bytes:
    """The statement that the sender signs: a share that does not open then proves who lied, the sender or the relay."""
    return canonical("sealed-share", roster, sender, receiver, sealed)


def check_share(roster: bytes, share: SealedShare, identity: EllipticCurvePublicKey) -> None:
    """Raise unless the sender signed exactly these sealed bytes for this receiver under this roster."""
    statement = share_statement(roster, share.sender, share.receiver, share.sealed)
    if len(share.sealed) != SEALED_BYTES or not signed(identity, share.signature, statement):
        raise TamperedShare(f"the share relayed from {share.sender} to {share.receiver} is not the one it signed")


def open_share(share: SealedShare, root: bytes, binding: bytes, committed: bytes) -> bytes:
    """The sender's share; one that does not open or is not what it committed to accuses the sender."""
    plain = unseal(sealing_key(root, share.sender, share.receiver), share.sealed, share.sender)
    if commitment(binding, share.sender, plain) != committed:
        sentence = f"the share of {share.sender} is not the one it committed to"
        raise TamperedShare(sentence, accused=share.sender)
    return plain


def combine(roster: bytes, shares: Mapping[str, bytes]) -> bytes:
    """The group secret from everybody's share."""
    return digest("group-secret", roster, *(shares[name] for name in sorted(shares)))
