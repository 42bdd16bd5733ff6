"""A consortium in memory for the secure sum: real certificates, real signatures, and a relay as the aggregator."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dcfpca import secagg
from dcfpca.errors import BadIdentity
from dcfpca.secagg.ring_fixed_point import FloatArray, RingArray

_SIGNING = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
_DAY = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@lru_cache(maxsize=4096)
def identity_key(name: str, authority: str = "consortium") -> ec.EllipticCurvePrivateKey:
    """A P-256 key that is always the same for one name, so that failing examples repeat."""
    scalar = int.from_bytes(hashlib.sha256(f"{authority}/{name}".encode()).digest(), "big") >> 1
    return ec.derive_private_key(scalar, ec.SECP256R1())


@lru_cache(maxsize=4096)
def certificate(name: str, authority: str = "consortium") -> bytes:
    """A certificate for the name, issued by the authority."""
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, authority)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(identity_key(name, authority).public_key())
        .serial_number(1)
        .not_valid_before(_DAY)
        .not_valid_after(_DAY + datetime.timedelta(days=3650))
    )
    made = builder.sign(identity_key("CA", authority), hashes.SHA256())
    return made.public_bytes(serialization.Encoding.DER)


@lru_cache(maxsize=4096)
def verify(der: bytes, name: str) -> ec.EllipticCurvePublicKey:
    """The public key of a certificate that the consortium's authority issued to this name."""
    parsed = x509.load_der_x509_certificate(der)
    authority = identity_key("CA").public_key()
    try:
        authority.verify(parsed.signature, parsed.tbs_certificate_bytes, ec.ECDSA(hashes.SHA256()))
    except Exception as error:
        raise BadIdentity(f"the certificate of {name} was not issued by the consortium") from error
    if parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value != name:
        raise BadIdentity(f"the certificate is not {name}'s")
    key = parsed.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key


def identity_of(name: str, authority: str = "consortium") -> secagg.SigningIdentity:
    key = identity_key(name, authority)
    return secagg.SigningIdentity(
        name, certificate(name, authority), lambda statement: key.sign(statement, _SIGNING), verify
    )


def site_names(count: int) -> tuple[str, ...]:
    return tuple(f"site-{index:04d}" for index in range(count))


def two_thirds(count: int) -> int:
    """A threshold that leaves room both for dropouts and for conspirators."""
    return max(count // 2 + 1, -(-2 * count // 3))


def context_of(count: int, **changes: object) -> secagg.Context:
    defaults: dict[str, object] = {
        "run": "run-1",
        "spec_digest": bytes(32),
        "round": 3,
        "attempt": 1,
        "cohort": site_names(count),
        "threshold": two_thirds(count),
        "min_cohort": 3,
    }
    return secagg.Context(**{**defaults, **changes})  # type: ignore[arg-type]


def seed_of(context: secagg.Context, name: str, salt: str = "") -> bytes:
    return hashlib.sha256(context.binding + name.encode() + salt.encode()).digest()


@dataclass
class Attempt:
    """One attempt with everything the aggregator holds; each step takes those who take part in it."""

    context: secagg.Context
    vectors: Mapping[str, FloatArray]
    sides: dict[str, secagg.ParticipantSide] = field(default_factory=dict)
    shares: list[secagg.SealedShare] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    bounds: dict[str, int] = field(default_factory=dict)
    masked: dict[str, RingArray] = field(default_factory=dict)
    attestations: dict[str, secagg.Attestation] = field(default_factory=dict)
    reveals: dict[str, secagg.Reveal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sides = {
            name: secagg.ParticipantSide(self.context, identity_of(name), seed_of(self.context, name))
            for name in self.context.cohort
        }

    def advertise(self, names: Iterable[str]) -> None:
        adverts = [self.sides[name].advertise() for name in names]
        for advert in adverts:
            secagg.accept_advert(self.context, advert, verify)
        self.closed = secagg.close_roster(self.context, adverts)

    def share(self, names: Iterable[str]) -> None:
        for name in names:
            shares = self.sides[name].share(secagg.roster_for(self.closed, name))
            secagg.accept_shares(self.closed, name, shares)
            self.shares += shares
            self.shared.add(name)

    def bound(self, names: Iterable[str]) -> None:
        for name in names:
            stated = self.sides[name].state_bound(self.vectors[name])
            self.bounds[name] = stated.exponent

    def agree(self) -> None:
        self.agreement = secagg.agree(self.closed, self.shared, self.bounds)

    def delivery(self, name: str) -> secagg.Delivery:
        return secagg.delivery_for(self.agreement, name, self.shares)

    def mask(self, names: Iterable[str]) -> None:
        for name in names:
            self.sides[name].agree(self.delivery(name))
            self.masked[name] = self.sides[name].mask(self.vectors[name])

    def attest(self, names: Iterable[str]) -> None:
        self.survivors = secagg.close_survivors(self.closed, self.agreement, self.masked.keys())
        for name in names:
            attestation = self.sides[name].attest(self.survivors)
            secagg.accept_attestation(self.closed, self.agreement, self.survivors, attestation, verify)
            self.attestations[name] = attestation

    def reveal(self, names: Iterable[str]) -> None:
        for name in names:
            request = secagg.request_for(self.closed, self.survivors, name, self.attestations)
            reveal = self.sides[name].reveal(request)
            secagg.accept_reveal(self.closed, self.agreement, self.survivors, reveal)
            self.reveals[name] = reveal

    def total(self, names: Collection[str] | None = None) -> RingArray:
        chosen = self.masked if names is None else {name: self.masked[name] for name in names}
        return np.add.reduce(list(chosen.values()), dtype=secagg.dtype_of(self.context.precision))

    def unmask(self) -> FloatArray:
        total = self.total()
        masks = secagg.recover(self.closed, self.agreement, self.survivors, list(self.reveals.values()))
        secagg.remove_masks(total, masks)
        return secagg.open_sum(self.context, self.agreement, total)

    def run_to(self, step: str) -> Attempt:
        """Everybody takes part in every step up to and including the named one."""
        names = self.context.cohort
        steps: dict[str, Callable[[], object]] = {
            "advertise": lambda: self.advertise(names),
            "share": lambda: self.share(names),
            "bound": lambda: self.bound(names),
            "agree": self.agree,
            "mask": lambda: self.mask(names),
            "attest": lambda: self.attest(names),
            "reveal": lambda: self.reveal(names),
        }
        for name, act in steps.items():
            act()
            if name == step:
                break
        return self


def random_vectors(context: secagg.Context, size: int, seed: int = 0) -> dict[str, FloatArray]:
    draw = np.random.default_rng(seed)
    return {name: draw.standard_normal(size) * 10.0 ** draw.integers(-3, 4) for name in context.cohort}
