"""The identity with which a participant signs its messages and verifies those of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256

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
