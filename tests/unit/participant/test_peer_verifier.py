"""Whom a site masks with: peers of its consortium under their own names, until the list says otherwise."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from dcfpca.errors import BadIdentity
from dcfpca.identity import Role
from dcfpca.pki.ca_directory import Authority, create_authority, list_records, revoke_certificates
from dcfpca.pki.credential_files import Credentials, issue_credentials, load_credentials
from participant.peer_verifier import PeerVerifier

NOW = datetime.now(UTC)


def credentials_of(authority: Authority, out: Path, name: str, role: Role = Role.PARTICIPANT) -> Credentials:
    files = issue_credentials(authority, role, name, out / name, now=NOW)
    return load_credentials(files.ca, files.certificate, files.key, now=NOW)


def der(own: Credentials) -> bytes:
    return own.certificate.public_bytes(Encoding.DER)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return create_authority(tmp_path / "ca", "acme", NOW)


def test_a_peer_is_believed_under_its_own_name_only(authority: Authority, tmp_path: Path) -> None:
    peer_verifier = PeerVerifier(credentials_of(authority, tmp_path, "ann"), None)
    bob = credentials_of(authority, tmp_path, "bob")
    for _ in range(2):
        peer_verifier.verify(der(bob), "bob")
        with pytest.raises(BadIdentity, match="is that of bob"):
            peer_verifier.verify(der(bob), "cem")


def test_an_operator_is_no_peer(authority: Authority, tmp_path: Path) -> None:
    peer_verifier = PeerVerifier(credentials_of(authority, tmp_path, "ann"), None)
    with pytest.raises(BadIdentity, match="participant is needed"):
        peer_verifier.verify(der(credentials_of(authority, tmp_path, "op", Role.OPERATOR)), "op")


def test_a_peer_on_a_new_list_is_refused_at_once_and_without_a_list_nobody_is_believed(
    authority: Authority, tmp_path: Path
) -> None:
    peer_verifier = PeerVerifier(credentials_of(authority, tmp_path, "ann"), authority.crl_path)
    bob, cem = credentials_of(authority, tmp_path, "bob"), credentials_of(authority, tmp_path, "cem")
    peer_verifier.verify(der(bob), "bob")
    chosen = tuple(one for one in list_records(authority.directory).records if one.identity.endswith("/bob"))
    revoke_certificates(authority, chosen, NOW, x509.ReasonFlags.key_compromise)
    with pytest.raises(BadIdentity, match="revoked"):
        peer_verifier.verify(der(bob), "bob")
    peer_verifier.verify(der(cem), "cem")
    authority.crl_path.unlink()
    with pytest.raises(BadIdentity, match="cannot be read"):
        peer_verifier.verify(der(cem), "cem")
