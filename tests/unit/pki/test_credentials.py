"""Credentials are believed only when key, certificate and CA fit together, now, for the role."""

from __future__ import annotations

import os
import shutil
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from dcfpca.errors import BadIdentity
from dcfpca.identity import Identity, Role
from dcfpca.pki.ca_directory import Authority, create_authority
from dcfpca.pki.credential_files import SiteFiles, issue_credentials, load_credentials
from dcfpca.pki.keys import check_mode, load_private_key, sign, verify
from dcfpca.pki.trust import whole_days

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return create_authority(tmp_path / "ca", "acme", NOW)


@pytest.fixture
def site(authority: Authority, tmp_path: Path) -> SiteFiles:
    return issue_credentials(authority, Role.PARTICIPANT, "hospital-a", tmp_path / "site", now=NOW)


def refusal(files: SiteFiles, *, now: datetime = NOW, role: Role | None = None) -> str:
    with pytest.raises(BadIdentity) as caught:
        load_credentials(files.ca, files.certificate, files.key, now=now, role=role)
    assert caught.value.hint
    return str(caught.value)


def test_good_credentials_say_who_and_until_when(site: SiteFiles) -> None:
    found = load_credentials(site.ca, site.certificate, site.key, now=NOW, role=Role.PARTICIPANT)
    assert found.identity == Identity("acme", Role.PARTICIPANT, "hospital-a")
    assert found.not_after == NOW + timedelta(days=90)
    assert whole_days(found.not_after, NOW + timedelta(days=30)) == 60


def test_no_secret_shows_in_the_repr_of_credentials(site: SiteFiles) -> None:
    found = load_credentials(site.ca, site.certificate, site.key, now=NOW)
    assert "PRIVATE" not in repr(found)
    assert "hospital-a" in repr(found)


def test_a_certificate_before_its_time_or_after_it_is_refused(site: SiteFiles) -> None:
    assert "is not valid before" in refusal(site, now=NOW - timedelta(hours=1))
    assert "expired on 2030-04-01" in refusal(site, now=NOW + timedelta(days=91))


def test_another_role_is_refused_with_both_roles_in_the_sentence(site: SiteFiles) -> None:
    sentence = refusal(site, role=Role.OPERATOR)
    assert "participant" in sentence
    assert "operator" in sentence


def test_the_key_of_another_certificate_is_refused(authority: Authority, site: SiteFiles, tmp_path: Path) -> None:
    other = issue_credentials(authority, Role.PARTICIPANT, "hospital-b", tmp_path / "b", now=NOW)
    shutil.copy(other.key, site.key)
    assert "does not belong" in refusal(site)


def test_a_certificate_of_another_ca_is_refused(site: SiteFiles, tmp_path: Path) -> None:
    stranger = create_authority(tmp_path / "stranger", "acme", NOW)
    shutil.copy(stranger.ca_path, site.ca)
    assert "not issued by a trusted CA" in refusal(site)


def test_two_cas_in_one_bundle_are_both_trusted(authority: Authority, site: SiteFiles, tmp_path: Path) -> None:
    following = create_authority(tmp_path / "next", "acme", NOW)
    renewed = issue_credentials(following, Role.PARTICIPANT, "hospital-a", tmp_path / "renewed", now=NOW)
    bundle = authority.ca_path.read_bytes() + following.ca_path.read_bytes()
    for files in (site, renewed):
        files.ca.write_bytes(bundle)
        assert load_credentials(files.ca, files.certificate, files.key, now=NOW).identity.name == "hospital-a"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o666])
def test_a_key_that_others_can_read_or_change_is_refused(site: SiteFiles, mode: int) -> None:
    site.key.chmod(mode)
    assert f"mode {mode:04o}" in refusal(site)


def test_a_secret_mounted_by_root_may_be_readable_by_the_services_group_alone(tmp_path: Path) -> None:
    def status(mode: int, owner: int) -> os.stat_result:
        return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, owner, 1000, 0, 0, 0, 0))

    key, service, root = tmp_path / "site.key", 1000, 0
    check_mode(status(0o640, root), key, service)
    check_mode(status(0o440, root), key, service)
    for mode, owner, user in (
        (0o644, root, service),
        (0o660, root, service),
        (0o640, service, service),
        (0o640, root, root),
    ):
        with pytest.raises(BadIdentity):
            check_mode(status(mode, owner), key, user)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_key_only_its_owner_can_read_is_used(site: SiteFiles, mode: int) -> None:
    site.key.chmod(mode)
    assert isinstance(load_private_key(site.key), ec.EllipticCurvePrivateKey)


def test_missing_and_garbled_files_are_each_named(site: SiteFiles) -> None:
    for path in (site.ca, site.certificate, site.key):
        whole = path.read_bytes()
        path.write_bytes(b"not a pem file")
        assert str(path) in refusal(site)
        path.unlink()
        assert str(path) in refusal(site)
        path.write_bytes(whole)
        path.chmod(0o600)


def test_an_encrypted_key_is_refused_with_the_way_to_decrypt_it(site: SiteFiles) -> None:
    key = load_private_key(site.key)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"passphrase"))
    site.key.write_bytes(locked)
    assert "encrypted with a passphrase" in refusal(site)


def test_keys_of_other_kinds_are_refused(site: SiteFiles) -> None:
    for key in (rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP521R1())):
        site.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        with pytest.raises(BadIdentity) as caught:
            load_private_key(site.key)
        assert "P-256 or P-384" in caught.value.hint


def test_a_signature_holds_for_its_data_and_key_alone_and_repeats_exactly(site: SiteFiles) -> None:
    key, other = load_private_key(site.key), ec.generate_private_key(ec.SECP256R1())
    signature = sign(key, b"dcfpca/v1/test data")
    assert sign(key, b"dcfpca/v1/test data") == signature
    assert verify(key.public_key(), signature, b"dcfpca/v1/test data")
    assert not verify(key.public_key(), signature, b"dcfpca/v1/test datA")
    assert not verify(other.public_key(), signature, b"dcfpca/v1/test data")
    assert not verify(key.public_key(), b"", b"dcfpca/v1/test data")
