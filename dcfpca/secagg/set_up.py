"""The set-up of a run: the checks that both sides make of its roster, and the group secret.

The group secret is a hash over one random share of every member, which the aggregator does not learn. Shares are
committed to in the adverts and sent only to holders of the complete roster, so nobody chooses its share after seeing
another's: the secret is uniform if one member is honest, and may seed the neighbour graph.

What two members share is hybrid: to find it, both X25519 and ML-KEM-768 must be broken.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dcfpca.errors import BadIdentity
from dcfpca.secagg.encoding import canonical, derive, digest
from dcfpca.secagg.errors import IncompleteCohort, InventedParticipant, ReplayedKey, SwappedKey, TamperedShare
from dcfpca.secagg.keys import (
    KEM_BYTES,
    KEM_KEY_BYTES,
    KEY_BYTES,
    Sign,
    Verify,
    check_usable,
    decapsulate,
    encapsulate,
    seal,
    signed,
    unseal,
)
from dcfpca.secagg.masks import sealing_key
from dcfpca.secagg.messages import Advert, Roster, RunTerms, SealedShare

SEALED_BYTES = KEM_BYTES + 2 * KEY_BYTES + 16


def agreement_key(seed: bytes) -> X25519PrivateKey:
    """The X25519 key of a run from the site's secret for it."""
    return X25519PrivateKey.from_private_bytes(derive(seed, "x25519-key"))


def kem_seed(seed: bytes) -> bytes:
    """The secret that the ML-KEM key is derived from. Whoever breaks the X25519 key does not learn it."""
    return derive(seed, "kem-seed")


def kem_key(seed: bytes) -> MLKEM768PrivateKey:
    """The ML-KEM-768 key of a run from its `kem_seed`."""
    return MLKEM768PrivateKey.from_seed_bytes(derive(seed, "kem-key-d") + derive(seed, "kem-key-z"))


def check_advert(terms: RunTerms, advert: Advert, verify: Verify) -> EllipticCurvePublicKey:
    """The owner's identity key, after checking that the owner advertised this key for this run and that it is
    usable."""
    name = advert.name
    if name not in terms.cohort:
        raise InventedParticipant(f"{name} is not in the cohort of run {terms.run}")
    if advert.binding != terms.binding:
        raise ReplayedKey(f"the key of {name} was advertised for another run, spec or cohort", accused=name)
    if {len(advert.key), len(advert.commitment)} != {KEY_BYTES}:
        raise SwappedKey(f"the key and the commitment of {name} do not have 32 bytes each", accused=name)
    if len(advert.kem_key) != KEM_KEY_BYTES:
        raise SwappedKey(f"the ML-KEM key of {name} does not have {KEM_KEY_BYTES} bytes", accused=name)
    identity = identity_key(advert, verify)
    if not signed(identity, advert.signature, advert.statement()):
        raise SwappedKey(f"the key relayed for {name} is not the one it signed")
    check_usable(advert.key, advert.kem_key, name)
    return identity


def identity_key(advert: Advert, verify: Verify) -> EllipticCurvePublicKey:
    """The key of the owner's certificate, which the consortium issued to this name."""
    try:
        return verify(advert.certificate, advert.name)
    except BadIdentity as error:
        raise InventedParticipant(f"{advert.name} has no valid certificate: {error}", error.hint) from error


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
        for value in (advert.key, advert.kem_key, advert.commitment):
            if value in seen:
                sentence = f"{advert.name} advertises a key that {seen[value]} advertised too"
                raise ReplayedKey(sentence, accused=advert.name)
            seen[value] = advert.name


def roster_digest(terms: RunTerms, roster: Roster) -> bytes:
    """The digest of the run and of every key and commitment of its members."""
    each = ((one.name, one.key, one.kem_key, one.commitment) for one in roster.adverts)
    return digest("roster", terms.binding, *(canonical("member", *fields) for fields in each))


def _difference(terms: RunTerms, names: tuple[str, ...]) -> str:
    if missing := set(terms.cohort) - set(names):
        return f"the roster of run {terms.run} lacks {', '.join(sorted(missing))}, whom this site consented to"
    if foreign := set(names) - set(terms.cohort):
        return f"the roster of run {terms.run} has {', '.join(sorted(foreign))}, whom this site did not consent to"
    return f"the roster of run {terms.run} is not in order, or names somebody twice"


def commitment(binding: bytes, name: str, share: bytes) -> bytes:
    """The commitment to a member's share, published before it sees the others' shares."""
    return digest("share-commitment", binding, name, share)


def seal_share(
    roster: bytes, agreement: bytes, sender: str, receiver: Advert, plain: tuple[bytes, bytes], sign: Sign
) -> SealedShare:
    """The sender's share of the group secret and its part of the pair's root for one receiver."""
    carried, ciphertext = encapsulate(receiver.kem_key, receiver.name)
    sealed = ciphertext + seal(sealing_key(agreement, carried, sender, receiver.name), b"".join(plain))
    return SealedShare(sender, receiver.name, sealed, sign(share_statement(roster, sender, receiver.name, sealed)))


def share_statement(roster: bytes, sender: str, receiver: str, sealed: bytes) -> bytes:
    """The statement that the sender signs: a share that does not open then proves who lied, the sender or the relay."""
    return canonical("sealed-share", roster, sender, receiver, sealed)


def check_share(roster: bytes, share: SealedShare, identity: EllipticCurvePublicKey) -> None:
    """Raise unless the sender signed exactly these sealed bytes for this receiver under this roster."""
    statement = share_statement(roster, share.sender, share.receiver, share.sealed)
    if len(share.sealed) != SEALED_BYTES or not signed(identity, share.signature, statement):
        raise TamperedShare(f"the share relayed from {share.sender} to {share.receiver} is not the one it signed")


def open_share(
    share: SealedShare, agreement: bytes, own: MLKEM768PrivateKey, binding: bytes, committed: bytes
) -> tuple[bytes, bytes]:
    """The sender's share of the group secret and its part of the pair's root. A share that does not open, or differs
    from its commitment, accuses the sender."""
    carried = decapsulate(own, share.sealed[:KEM_BYTES], share.sender)
    key = sealing_key(agreement, carried, share.sender, share.receiver)
    plain = unseal(key, share.sealed[KEM_BYTES:], share.sender)
    if commitment(binding, share.sender, plain[:KEY_BYTES]) != committed:
        sentence = f"the share of {share.sender} is not the one it committed to"
        raise TamperedShare(sentence, accused=share.sender)
    return plain[:KEY_BYTES], plain[KEY_BYTES:]


def combine(roster: bytes, shares: Mapping[str, bytes]) -> bytes:
    """The group secret from everybody's share."""
    return digest("group-secret", roster, *(shares[name] for name in sorted(shares)))
