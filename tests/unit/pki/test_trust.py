"""A peer is believed only with a certificate of the consortium's CA that is in force, of the role, and not revoked."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from dcfpca.errors import BadIdentity, BadInput
from dcfpca.identity import Identity, Role, fingerprint
from dcfpca.pki.authority import CertificateRequest, new_request, read_request
from dcfpca.pki.ca_directory import Authority, create_authority, issue_certificate, list_records, revoke_certificates
from dcfpca.pki.keys import new_private_key, public_der
from dcfpca.pki.revocation import identity_mark, key_mark, load_revocations, serial_mark
from dcfpca.pki.trust import verify_peer

NOW = datetime(2030, 1, 1, tzinfo=UTC)
KEY = new_private_key()
SITE = CertificateRequest(Identity("acme", Role.PARTICIPANT, "hospital-a"), (), KEY.public_key())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return create_authority(tmp_path / "ca", "acme", NOW)


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)


def forged(authority: Authority, identity: str, days: int = 90, *, ca: bool = False) -> x509.Certificate:
    """A certificate the CA's key has signed although `certs` never would."""
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(authority.certificate.subject)
        .public_key(KEY.public_key())
        .serial_number(77)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), critical=True)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .sign(authority.key, hashes.SHA256())
    )


def test_a_good_peer_is_known_by_identity_and_key_in_der_and_in_pem(authority: Authority) -> None:
    certificate = issue_certificate(authority, SITE, NOW)
    for encoding in (Encoding.DER, Encoding.PEM):
        data = certificate.public_bytes(encoding)
        identity, key = verify_peer(data, [authority.certificate], frozenset(), Role.PARTICIPANT, NOW)
        assert identity == SITE.identity
        assert public_der(key) == public_der(KEY.public_key())


def test_a_revoked_peer_is_refused_by_fingerprint_serial_key_and_name(authority: Authority) -> None:
    certificate = issue_certificate(authority, SITE, NOW)
    serial = serial_mark(certificate.issuer, certificate.serial_number)
    for mark in (fingerprint(certificate), serial, key_mark(certificate), identity_mark(SITE.identity)):
        with pytest.raises(BadIdentity, match="revoked"):
            verify_peer(der(certificate), [authority.certificate], {mark}, Role.PARTICIPANT, NOW)


def test_wrong_role_wrong_time_and_wrong_ca_are_refused(authority: Authority, tmp_path: Path) -> None:
    data = der(issue_certificate(authority, SITE, NOW))
    stranger = create_authority(tmp_path / "stranger", "acme", NOW)
    with pytest.raises(BadIdentity, match="operator is needed"):
        verify_peer(data, [authority.certificate], frozenset(), Role.OPERATOR, NOW)
    with pytest.raises(BadIdentity, match="expired"):
        verify_peer(data, [authority.certificate], frozenset(), None, NOW + timedelta(days=91))
    with pytest.raises(BadIdentity, match="trusted CA"):
        verify_peer(data, [stranger.certificate], frozenset(), None, NOW)
    with pytest.raises(BadIdentity, match="trusted CA"):
        verify_peer(data, [], frozenset(), None, NOW)


def test_what_the_ca_may_not_sign_is_refused_even_with_its_signature(authority: Authority) -> None:
    cases = {
        "may not issue": forged(authority, "spiffe://other/participant/hospital-a"),
        "more than 398 days": forged(authority, "spiffe://acme/participant/hospital-a", days=400),
        "of an authority": forged(authority, "spiffe://acme/participant/hospital-a", ca=True),
    }
    for words, certificate in cases.items():
        with pytest.raises(BadIdentity, match=words):
            verify_peer(der(certificate), [authority.certificate], frozenset(), None, NOW)


def made_otherwise(
    authority: Authority,
    uris: tuple[str, ...] = ("spiffe://acme/participant/hospital-a",),
    purposes: tuple[x509.ObjectIdentifier, ...] = (ExtendedKeyUsageOID.CLIENT_AUTH,),
    key: CertificatePublicKeyTypes | None = None,
    hash: Any = None,
) -> x509.Certificate:
    """What another CA software could make under the consortium's CA."""
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(authority.certificate.subject)
        .public_key(key or KEY.public_key())
        .serial_number(78)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=30))
        .add_extension(names, critical=True)
    )
    if purposes:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    return builder.sign(authority.key, hash or hashes.SHA256())


def test_a_certificate_of_other_software_is_believed_if_it_says_the_same(authority: Authority) -> None:
    identity, _ = verify_peer(
        der(made_otherwise(authority)), [authority.certificate], frozenset(), Role.PARTICIPANT, NOW
    )
    assert identity == SITE.identity


AGGREGATOR = ("spiffe://acme/aggregator/agg",)
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"uris": ("spiffe://acme/participant/a", "spiffe://acme/operator/a")}, "2 URI names"),
        ({"uris": ("spiffe://acme/operator",)}, "is not an identity"),
        ({"uris": ("spiffe://acme/root/a",)}, "is not a role"),
        ({"uris": ("spiffe://acme/participant/../operator",)}, "is not an identity"),
        ({"purposes": ()}, "for TLS as a client"),
        ({"purposes": (SERVER,)}, "for TLS as a client"),
        ({"purposes": (ExtendedKeyUsageOID.CODE_SIGNING,)}, "for TLS as a client"),
        ({"uris": AGGREGATOR, "purposes": (CLIENT,)}, "for TLS as a server"),
        ({"key": rsa.generate_private_key(65537, 2048).public_key()}, "elliptic curve"),
        ({"key": ec.generate_private_key(ec.SECP224R1()).public_key()}, "secp224r1"),
        ({"key": ed25519.Ed25519PrivateKey.generate().public_key()}, "elliptic curve"),
        ({"hash": hashes.SHA224()}, "signed with sha224"),
    ],
)
def test_a_certificate_with_odd_names_purposes_keys_or_hashes_is_refused(
    authority: Authority, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadIdentity, match=words):
        verify_peer(der(made_otherwise(authority, **given)), [authority.certificate], frozenset(), None, NOW)


def test_a_ca_that_excludes_the_consortium_may_not_sign_for_it(authority: Authority) -> None:
    scope = x509.NameConstraints(None, [x509.UniformResourceIdentifier("acme")])
    excluding = (
        x509.CertificateBuilder()
        .subject_name(authority.certificate.subject)
        .issuer_name(authority.certificate.subject)
        .public_key(authority.key.public_key())
        .serial_number(5)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=300))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(scope, critical=True)
        .sign(authority.key, hashes.SHA256())
    )
    with pytest.raises(BadIdentity, match="may not issue"):
        verify_peer(der(made_otherwise(authority)), [excluding], frozenset(), None, NOW)


def test_a_participant_cannot_issue_certificates_itself(authority: Authority) -> None:
    site = issue_certificate(authority, SITE, NOW)
    below = forged(replace(authority, certificate=site, key=KEY), "spiffe://acme/operator/me")
    with pytest.raises(BadIdentity, match="trusted CA"):
        verify_peer(der(below), [authority.certificate], frozenset(), None, NOW)
    with pytest.raises(BadIdentity, match="not a certificate authority"):
        verify_peer(der(below), [site], frozenset(), None, NOW)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_no_damaged_certificate_is_believed_or_crashes_the_check(authority: Authority) -> None:
    data = der(issue_certificate(authority, SITE, NOW))
    chance = random.Random(7)
    for _ in range(2000):
        damaged = bytearray(data)
        damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.2:
            del damaged[chance.randrange(len(data)) :]
        with pytest.raises(BadIdentity):
            verify_peer(bytes(damaged), [authority.certificate], frozenset(), Role.PARTICIPANT, NOW)


def test_a_lifetime_is_limited_by_the_rule_and_by_the_ca(authority: Authority, tmp_path: Path) -> None:
    for days in (0, -1, 399):
        with pytest.raises(BadInput, match="1 to 398 days"):
            issue_certificate(authority, SITE, NOW, days)
    short = create_authority(tmp_path / "short", "acme", NOW, days=30)
    with pytest.raises(BadInput, match="CA expires in 30 days"):
        issue_certificate(short, SITE, NOW)
    assert list_records(authority.directory).records == ()


def test_the_ca_may_sign_only_roles_of_its_consortium(authority: Authority) -> None:
    extensions = authority.certificate.extensions
    assert extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    usage = extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.key_cert_sign, usage.crl_sign, usage.digital_signature) == (True, True, False)
    with pytest.raises(BadIdentity, match="consortium 'other'"):
        issue_certificate(authority, replace(SITE, identity=Identity("other", Role.PARTICIPANT, "a")), NOW)


def test_a_revocation_reaches_whoever_reads_the_list(authority: Authority) -> None:
    kept, lost = issue_certificate(authority, SITE, NOW), issue_certificate(authority, SITE, NOW)
    assert load_revocations(authority.crl_path, [authority.certificate], NOW) == frozenset()
    chosen = list_records(authority.directory).records[1:]
    revoke_certificates(authority, chosen, NOW, x509.ReasonFlags.key_compromise)
    revoked = load_revocations(authority.crl_path, [authority.certificate], NOW)
    assert revoked == {serial_mark(lost.issuer, lost.serial_number)}
    verify_peer(der(kept), [authority.certificate], revoked, None, NOW)
    with pytest.raises(BadIdentity, match="revoked"):
        verify_peer(der(lost), [authority.certificate], revoked, None, NOW)


def test_lists_of_two_cas_in_one_file_both_count(authority: Authority, tmp_path: Path) -> None:
    following = create_authority(tmp_path / "next", "acme", NOW)
    both = tmp_path / "both.pem"
    for one in (authority, following):
        issue_certificate(one, SITE, NOW)
        revoke_certificates(one, list_records(one.directory).records, NOW, x509.ReasonFlags.unspecified)
    both.write_bytes(authority.crl_path.read_bytes() + following.crl_path.read_bytes())
    assert len(load_revocations(both, [authority.certificate, following.certificate], NOW)) == 2
    with pytest.raises(BadIdentity, match="not signed by a trusted CA"):
        load_revocations(both, [following.certificate], NOW)


def test_a_list_that_is_missing_garbled_or_stale_is_refused(authority: Authority, tmp_path: Path) -> None:
    garbled = tmp_path / "garbled.pem"
    garbled.write_bytes(b"nothing")
    for path, when in ((tmp_path / "none.pem", NOW), (garbled, NOW), (authority.crl_path, NOW + timedelta(days=3651))):
        with pytest.raises(BadIdentity, match=path.name):
            load_revocations(path, [authority.certificate], when)


def test_a_request_carries_the_identity_and_hosts_and_only_its_signer_can_make_it() -> None:
    identity = Identity("acme", Role.AGGREGATOR, "agg")
    pem = new_request(identity, ["Agg.example.org", "127.0.0.1", "::1"], KEY).public_bytes(Encoding.PEM)
    assert read_request(pem, "agg.csr").hosts == ("agg.example.org", "127.0.0.1", "::1")
    assert read_request(pem, "agg.csr").identity == identity
    request = x509.load_pem_x509_csr(pem)
    damaged = bytearray(request.public_bytes(Encoding.DER))
    at = bytes(damaged).index(b"spiffe://acme/aggregator/agg") + len("spiffe://acme/aggregator/")
    damaged[at] = ord("b")
    changed = x509.load_der_x509_csr(bytes(damaged)).public_bytes(Encoding.PEM)
    with pytest.raises(BadIdentity, match="signature"):
        read_request(changed, "agg.csr")


@pytest.mark.parametrize("host", ["agg:50051", "https://agg", "a b", "", "-agg", "*.example.org", "a" * 64])
def test_what_is_not_a_host_is_not_put_in_a_request(host: str) -> None:
    with pytest.raises(BadInput, match="host"):
        new_request(Identity("acme", Role.AGGREGATOR, "agg"), [host], KEY)


def test_hosts_are_for_the_aggregator_and_it_needs_one() -> None:
    with pytest.raises(BadInput, match="needs a host"):
        new_request(Identity("acme", Role.AGGREGATOR, "agg"), [], KEY)
    with pytest.raises(BadInput, match="carries no host"):
        new_request(SITE.identity, ["localhost"], KEY)


def test_a_request_with_a_curve_of_no_use_is_refused() -> None:
    weak = ec.generate_private_key(ec.SECP521R1())
    with pytest.raises(BadIdentity, match="secp521r1"):
        read_request(new_request(SITE.identity, [], weak).public_bytes(Encoding.PEM), "site.csr")


@pytest.mark.parametrize("text", ["", "{}", '{"format": 9}', '{"format": 1, "certificates": [{}], "crl_number": 1}'])
def test_a_damaged_index_is_said_to_be_damaged(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(BadInput, match="damaged"):
        list_records(tmp_path)
