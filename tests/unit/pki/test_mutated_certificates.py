"""What is believed of a changed certificate: only what the CA signed, and revocation holds for every form of it.

One changed certificate was once believed: the signature is a bit string, and the number of unused bits before it had
gone from 0 to 1, which decoders allow where the last bit is 0. That is refused now. One form beside the original is
still believed: (r, n − s), the other valid ECDSA signature, which anybody can compute. It is not refused, because
signers choose between the two forms at random. It gains nothing, because nothing is decided by the bytes of a
certificate: identity, key, issuer and serial number are signed. A PEM file may have text around its certificate, which
is not part of it.
"""

from __future__ import annotations

import os
import random
import warnings
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.utils import CryptographyDeprecationWarning

from dcfpca.errors import BadIdentity
from dcfpca.identity import Identity, Role, fingerprint
from dcfpca.pki.authority import CertificateRequest
from dcfpca.pki.ca_directory import Authority, create_authority, issue_certificate
from dcfpca.pki.keys import new_private_key
from dcfpca.pki.revocation import identity_mark, is_revoked, key_mark, marks_of, serial_mark
from dcfpca.pki.trust import verify_peer
from tests.support.hostile.certificates import damaged, other_encodings, twisted, with_signature

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SITE = CertificateRequest(Identity("acme", Role.PARTICIPANT, "hospital-a"), (), new_private_key().public_key())
MUTATIONS = 30_000 if os.environ.get("DCFPCA_LONG") else 1_000


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return create_authority(tmp_path / "ca", "acme", NOW)


@pytest.fixture
def certificate(authority: Authority) -> x509.Certificate:
    return issue_certificate(authority, SITE, NOW)


def believed(data: bytes, authority: Authority, revoked: frozenset[str] = frozenset()) -> bool:
    try:
        identity, _ = verify_peer(data, [authority.certificate], revoked, None, NOW)
    except BadIdentity:
        return False
    assert identity == SITE.identity
    return True


def test_a_twisted_signature_is_as_valid_and_says_the_same(authority: Authority, certificate: x509.Certificate) -> None:
    other = x509.load_der_x509_certificate(twisted(certificate))
    assert believed(twisted(certificate), authority)
    assert fingerprint(other) != fingerprint(certificate)
    assert other.tbs_certificate_bytes == certificate.tbs_certificate_bytes
    assert marks_of(other) == marks_of(certificate)


def test_revoking_by_any_mark_turns_both_forms_away(authority: Authority, certificate: x509.Certificate) -> None:
    serial = serial_mark(certificate.issuer, certificate.serial_number)
    marks = {fingerprint(certificate), serial, key_mark(certificate), identity_mark(SITE.identity)}
    for mark in marks:
        for form in (certificate.public_bytes(Encoding.DER), twisted(certificate)):
            assert not believed(form, authority, frozenset({mark}))


def test_a_serial_number_of_another_authority_revokes_nothing(
    authority: Authority, certificate: x509.Certificate, tmp_path: Path
) -> None:
    other = create_authority(tmp_path / "other", "acme", NOW)
    mark = serial_mark(other.certificate.subject, certificate.serial_number)
    assert believed(certificate.public_bytes(Encoding.DER), authority, frozenset({mark}))


def test_the_other_form_of_a_p384_signature_is_known_too() -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([])
    uri = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(str(SITE.identity))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(SITE.public_key)
    certificate = (
        builder.serial_number(5)
        .not_valid_before(NOW)
        .not_valid_after(NOW)
        .add_extension(uri, critical=False)
        .sign(key, hashes.SHA384())
    )
    order = (2**192 - 1 << 192) + 0xC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973
    assert (2**384 - order).bit_length() < 192
    other = x509.load_der_x509_certificate(twisted(certificate, order))
    key.public_key().verify(other.signature, other.tbs_certificate_bytes, ec.ECDSA(hashes.SHA384()))
    assert is_revoked(other, {fingerprint(certificate)})


def test_no_other_encoding_of_the_same_statement_is_believed(authority: Authority) -> None:
    for _ in range(4):
        certificate = issue_certificate(authority, SITE, NOW)
        assert [what for what, form in other_encodings(certificate) if believed(form, authority)] == []


def test_a_signature_whose_last_bits_are_declared_unused_is_refused(authority: Authority) -> None:
    certificate = issue_certificate(authority, SITE, NOW)
    while certificate.signature[-1] & 1:
        certificate = issue_certificate(authority, SITE, NOW)
    form = with_signature(certificate, certificate.signature, unused_bits=1)
    assert x509.load_der_x509_certificate(form).signature == certificate.signature
    with pytest.raises(BadIdentity, match="not encoded as it was signed"):
        verify_peer(form, [authority.certificate], frozenset(), None, NOW)


def test_of_many_damaged_certificates_none_is_believed(authority: Authority, certificate: x509.Certificate) -> None:
    data, chance = certificate.public_bytes(Encoding.DER), random.Random(11)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for _ in range(MUTATIONS):
            form = damaged(data, chance)
            assert form == data or not believed(form, authority), form.hex()


def test_a_damaged_pem_file_is_the_very_certificate_or_not_believed(
    authority: Authority, certificate: x509.Certificate
) -> None:
    data, chance = certificate.public_bytes(Encoding.PEM), random.Random(12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for _ in range(MUTATIONS):
            form = damaged(data, chance)
            if believed(form, authority):
                assert x509.load_pem_x509_certificate(form) == certificate, form
