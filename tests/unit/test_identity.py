"""An identity is exactly one URI of a fixed form; everything else is refused with a sentence."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from dcfpca.errors import BadIdentity
from dcfpca.identity import Identity, Role, fingerprint, identity_of, parse_role

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def certificate_naming(*names: x509.GeneralName) -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=True)
    return builder.sign(key, hashes.SHA256())


def uri(text: str) -> x509.UniformResourceIdentifier:
    return x509.UniformResourceIdentifier(text)


@given(role=st.sampled_from(Role), name=st.from_regex(r"[a-z0-9]{1,20}([.-][a-z0-9]{1,20})?", fullmatch=True))
def test_an_identity_survives_its_uri(role: Role, name: str) -> None:
    identity = Identity("acme.example", role, name)
    assert Identity.parse(str(identity)) == identity


@pytest.mark.parametrize(
    "name",
    ["", "A", "a_b", "a b", "-a", "a-", ".a", "a.", "a..b", "..", "a/b", "ä", "a" * 64, "a\n", "a.-b"],
)
def test_names_that_could_mislead_a_path_or_a_person_are_refused(name: str) -> None:
    with pytest.raises(BadIdentity) as caught:
        Identity("acme", Role.PARTICIPANT, name)
    assert caught.value.hint


def test_a_name_of_63_characters_is_allowed() -> None:
    assert Identity("acme", Role.PARTICIPANT, "a" * 63).name == "a" * 63


@pytest.mark.parametrize(
    "text",
    [
        "",
        "acme/participant/a",
        "https://acme/participant/a",
        "spiffe://acme/participant",
        "spiffe://acme/participant/a/b",
        "spiffe://acme/participant/",
        "spiffe:///participant/a",
        "spiffe://acme/Participant/a",
        "spiffe://acme/boss/a",
        "spiffe://acme:80/participant/a",
        "spiffe://acme/participant/a?x=1",
        "SPIFFE://acme/participant/a",
    ],
)
def test_other_uris_are_no_identity(text: str) -> None:
    with pytest.raises(BadIdentity):
        Identity.parse(text)


def test_a_wrong_role_is_answered_with_the_roles_there_are() -> None:
    with pytest.raises(BadIdentity) as caught:
        parse_role("boss")
    assert "aggregator, participant, operator" in caught.value.hint


def test_the_identity_of_a_certificate_is_its_uri_whatever_hosts_it_names() -> None:
    certificate = certificate_naming(x509.DNSName("localhost"), uri("spiffe://acme/aggregator/agg"))
    assert identity_of(certificate) == Identity("acme", Role.AGGREGATOR, "agg")


def test_a_certificate_without_a_uri_says_no_identity() -> None:
    for certificate in (certificate_naming(), certificate_naming(x509.DNSName("localhost"))):
        with pytest.raises(BadIdentity):
            identity_of(certificate)


def test_a_certificate_with_two_uris_says_no_identity() -> None:
    certificate = certificate_naming(uri("spiffe://acme/operator/a"), uri("spiffe://acme/participant/a"))
    with pytest.raises(BadIdentity, match="2 URI names"):
        identity_of(certificate)


def test_the_fingerprint_is_sha256_of_the_der_bytes() -> None:
    certificate = certificate_naming()
    assert fingerprint(certificate) == hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
