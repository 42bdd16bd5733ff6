"""Who a participant is to the others: a certificate, the signatures made under it, and how it judges theirs."""

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
    """Who a participant is: its certificate, its signature (deterministic, RFC 6979), and how it judges others'."""

    name: str
    certificate: bytes
    sign: Sign
    verify: Verify


def signed(identity: EllipticCurvePublicKey, signature: bytes, statement: bytes) -> bool:
    """Whether the signature over the statement is the identity's."""
    try:
        identity.verify(signature, statement, _ECDSA)
    except InvalidSignature:
        return False
    return True
