"""Keys: everything secret is derived from one 32-byte seed per attempt, so that a restart says the same bytes again.

X25519 agrees on a secret between two participants, HKDF-SHA256 makes single-purpose keys of it, AES-256-GCM seals.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dcfpca.errors import BadInput
from dcfpca.secagg.context import Context
from dcfpca.secagg.encoding import Field, canonical, digest
from dcfpca.secagg.errors import SwappedKey, TamperedShare

KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Secrets:
    """What one participant keeps to itself during one attempt."""

    seal: X25519PrivateKey = field(repr=False)
    mask: X25519PrivateKey = field(repr=False)
    self_mask: bytes = field(repr=False)
    sharing: bytes = field(repr=False)


def secrets_from(context: Context, name: str, seed: bytes) -> Secrets:
    """The secrets of this attempt; the seed must be fresh entropy, and must serve no other attempt."""
    if len(seed) != KEY_BYTES:
        raise BadInput(f"the seed of an attempt has 32 bytes, not {len(seed)}")
    return Secrets(
        seal=X25519PrivateKey.from_private_bytes(derive(seed, "seal-key", context.binding, name)),
        mask=X25519PrivateKey.from_private_bytes(derive(seed, "mask-key", context.binding, name)),
        self_mask=derive(seed, "self-mask-seed", context.binding, name),
        sharing=derive(seed, "sharing-key", context.binding, name),
    )


def derive(secret: bytes, purpose: str, *bound: Field) -> bytes:
    """HKDF-SHA256 without salt; the info is the canonical statement of the purpose and of all that is bound."""
    return HKDF(SHA256(), KEY_BYTES, None, canonical(purpose, *bound)).derive(secret)


def agree(own: X25519PrivateKey, peer: bytes, peer_name: str) -> bytes:
    """The X25519 secret with a peer; a key that would give a known secret is refused."""
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError as error:
        raise SwappedKey(f"the key advertised for {peer_name} is not a usable X25519 key") from error


def commitment(context: Context, name: str, self_mask: bytes) -> bytes:
    """What a participant publishes about its self-mask seed, so that a reconstructed one can be checked."""
    return digest("self-mask-commitment", context.binding, name, self_mask)


def seal(key: bytes, plain: bytes) -> bytes:
    """AES-256-GCM under a key that seals this one message, hence with a fixed nonce."""
    return AESGCM(key).encrypt(bytes(12), plain, None)


def unseal(key: bytes, sealed: bytes, sender: str) -> bytes:
    """The plain text, or TamperedShare."""
    try:
        return AESGCM(key).decrypt(bytes(12), sealed, None)
    except (InvalidTag, ValueError) as error:
        raise TamperedShare(f"the share from {sender} was changed on its way, or was not meant for here") from error
