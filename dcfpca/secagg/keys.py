"""Key agreement, sealing and signatures: what the secure sum asks of the cryptographic library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256

from dcfpca.secagg.errors import SwappedKey, TamperedShare

KEY_BYTES = 32
KEM_KEY_BYTES = 1184
KEM_BYTES = 1088
"""The sizes of an ML-KEM-768 public key, and of a ciphertext that carries a secret to its holder."""

Sign = Callable[[bytes], bytes]
# (certificate DER, name) → the certificate's public key, or BadIdentity. Callers cache it: one chain, one check a run.
Verify = Callable[[bytes, str], EllipticCurvePublicKey]

_ECDSA = ECDSA(SHA256())


@dataclass(frozen=True, slots=True)
class SigningIdentity:
    """A participant's certificate, its signing function (deterministic, RFC 6979), and its verifier of others."""

    name: str
    certificate: bytes
    sign: Sign
    verify: Verify


def signed(identity: EllipticCurvePublicKey, signature: bytes, statement: bytes) -> bool:
    """True if the signature over the statement verifies under this key."""
    try:
        identity.verify(signature, statement, _ECDSA)
    except InvalidSignature:
        return False
    return True


def agree(own: X25519PrivateKey, peer: bytes, peer_name: str) -> bytes:
    """The X25519 secret with a peer; a key that would give a known secret is refused."""
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError as error:
        raise SwappedKey(f"the key advertised for {peer_name} is not a usable X25519 key", accused=peer_name) from error


def encapsulate(peer: bytes, peer_name: str) -> tuple[bytes, bytes]:
    """A fresh secret and the ML-KEM-768 ciphertext that carries it to the holder of this key."""
    return _kem_public(peer, peer_name).encapsulate()


def _kem_public(key: bytes, name: str) -> MLKEM768PublicKey:
    try:
        return MLKEM768PublicKey.from_public_bytes(key)
    except ValueError as error:
        raise SwappedKey(f"the key advertised for {name} is not a usable ML-KEM-768 key", accused=name) from error


def decapsulate(own: MLKEM768PrivateKey, carried: bytes, sender: str) -> bytes:
    """The secret that the sender's ciphertext carries; a random one, which opens nothing, if the ciphertext is for
    somebody else."""
    try:
        return own.decapsulate(carried)
    except ValueError as error:
        raise TamperedShare(f"the share from {sender} does not begin with a ciphertext", accused=sender) from error


# Whether a point has small order does not depend on the other side's key, so any key will do for the test.
_PROBE = X25519PrivateKey.from_private_bytes(bytes(range(KEY_BYTES)))


def check_usable(key: bytes, kem_key: bytes, name: str) -> None:
    """Refuse an X25519 key of small order, with which everybody would agree on a known secret, and bytes that are not
    an ML-KEM key."""
    agree(_PROBE, key, name)
    _kem_public(kem_key, name)


def seal(key: bytes, plain: bytes) -> bytes:
    """AES-256-GCM with a fixed nonce, which is safe because the key seals only this one message."""
    return AESGCM(key).encrypt(bytes(12), plain, None)


def unseal(key: bytes, sealed: bytes, sender: str) -> bytes:
    """The plain text, or TamperedShare."""
    try:
        return AESGCM(key).decrypt(bytes(12), sealed, None)
    except (InvalidTag, ValueError) as error:
        sentence = f"the share from {sender} was changed in transit, or is for another site"
        raise TamperedShare(sentence, accused=sender) from error
