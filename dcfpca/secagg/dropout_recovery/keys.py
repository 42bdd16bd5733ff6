"""Keys: all secrets are derived from one 32-byte seed per attempt, so that a restart sends the same bytes again.

X25519, HKDF-SHA256 and AES-256-GCM themselves are in `dcfpca.secagg.keys`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dcfpca.errors import BadInput
from dcfpca.secagg.canonical_encoding import Field, canonical, digest
from dcfpca.secagg.dropout_recovery.context import Context
from dcfpca.secagg.keys import KEY_BYTES, hkdf


@dataclass(frozen=True, slots=True)
class Secrets:
    """One participant's secrets of one attempt."""

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
    return hkdf(secret, canonical(purpose, *bound))


def commitment(context: Context, name: str, self_mask: bytes) -> bytes:
    """The commitment to a self-mask seed, against which a reconstructed seed is checked."""
    return digest("self-mask-commitment", context.binding, name, self_mask)
