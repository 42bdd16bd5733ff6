"""A site keeps the latest revocation list that it has seen, and believes no peer on it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from dcfpca.doctor import Level
from dcfpca.errors import BadIdentity
from dcfpca.identity import Role
from dcfpca.pki.ca_directory import (
    Authority,
    create_authority,
    list_records,
    renew_revocation_list,
    revoke_certificates,
)
from dcfpca.pki.credential_files import Credentials, issue_credentials, load_credentials
from participant.commands.doctor import judge_list
from participant.peer_verifier import KeptRevocationList, PeerVerifier

NOW = datetime.now(UTC)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return create_authority(tmp_path / "ca", "acme", NOW)


@pytest.fixture
def kept(tmp_path: Path) -> KeptRevocationList:
    (tmp_path / "state").mkdir()
    return KeptRevocationList.in_state(tmp_path / "state")


def site(authority: Authority, name: str, out: Path) -> Credentials:
    files = issue_credentials(authority, Role.PARTICIPANT, name, out / name, now=NOW)
    return load_credentials(files.ca, files.certificate, files.key, now=NOW)


def revoke_all(authority: Authority) -> bytes:
    records = list_records(authority.directory).records
    revoke_certificates(authority, records, NOW, x509.ReasonFlags.unspecified)
    return authority.crl_path.read_bytes()


def test_a_peer_on_the_list_that_was_fetched_is_not_believed(
    authority: Authority, kept: KeptRevocationList, tmp_path: Path
) -> None:
    peer = site(authority, "mallory", tmp_path)
    believer = PeerVerifier(site(authority, "ann", tmp_path), None, kept)
    shown = peer.certificate.public_bytes(Encoding.DER)
    believer.verify(shown, "mallory")
    assert kept.take(revoke_all(authority), [authority.certificate], NOW)
    with pytest.raises(BadIdentity, match="revoked"):
        believer.verify(shown, "mallory")


def test_an_older_list_than_seen_is_refused_and_the_later_one_kept(
    authority: Authority, kept: KeptRevocationList, tmp_path: Path
) -> None:
    site(authority, "mallory", tmp_path)
    first = authority.crl_path.read_bytes()
    second = revoke_all(authority)
    authorities = [authority.certificate]
    assert kept.take(first, authorities, NOW)
    assert not kept.take(first, authorities, NOW)
    assert kept.take(second, authorities, NOW)
    for older in (first, b""):
        with pytest.raises(BadIdentity, match=r"older than the one seen|has no revocation list"):
            kept.take(older, authorities, NOW)
    assert kept.path.read_bytes() == second


def test_a_list_that_was_kept_until_it_ran_out_is_not_followed_by_an_older_one(
    authority: Authority, kept: KeptRevocationList
) -> None:
    first = authority.crl_path.read_bytes()
    renew_revocation_list(authority, NOW, 1)
    assert kept.take(authority.crl_path.read_bytes(), [authority.certificate], NOW)
    with pytest.raises(BadIdentity, match="older than the one seen"):
        kept.take(first, [authority.certificate], NOW + timedelta(days=2))
    with pytest.raises(BadIdentity, match="superseded"):
        kept.read([authority.certificate], NOW + timedelta(days=2))
    renew_revocation_list(authority, NOW + timedelta(days=2), 1)
    assert kept.take(authority.crl_path.read_bytes(), [authority.certificate], NOW + timedelta(days=2))


def test_what_no_trusted_ca_has_signed_is_refused(
    authority: Authority, kept: KeptRevocationList, tmp_path: Path
) -> None:
    stranger = create_authority(tmp_path / "stranger", "acme", NOW)
    sound = authority.crl_path.read_bytes()
    damaged = sound[:60] + (b"A" if sound[60:61] != b"A" else b"B") + sound[61:]
    for pem in (stranger.crl_path.read_bytes(), damaged, b"nothing"):
        with pytest.raises(BadIdentity, match="from the aggregator"):
            kept.take(pem, [authority.certificate], NOW)
    assert not kept.path.exists()


def test_during_a_change_of_ca_the_list_of_the_one_that_is_known_counts(
    authority: Authority, kept: KeptRevocationList, tmp_path: Path
) -> None:
    following = create_authority(tmp_path / "next", "acme", NOW)
    both = authority.crl_path.read_bytes() + following.crl_path.read_bytes()
    assert kept.take(both, [authority.certificate], NOW)
    with pytest.raises(BadIdentity, match="older than the one seen"):
        kept.take(following.crl_path.read_bytes(), [authority.certificate, following.certificate], NOW)
    # Once the old CA is out of the bundle, its list is no longer missed.
    assert kept.take(following.crl_path.read_bytes(), [following.certificate], NOW)


@pytest.mark.parametrize(("days", "level"), [(5, Level.WARN), (60, Level.OK), (None, Level.OK)])
def test_the_doctor_tells_in_time_that_a_list_runs_out(
    authority: Authority, kept: KeptRevocationList, days: int | None, level: Level
) -> None:
    renew_revocation_list(authority, NOW, days)
    kept.take(authority.crl_path.read_bytes(), [authority.certificate], NOW)
    lists = kept.read([authority.certificate], NOW)
    assert lists is not None
    assert judge_list("crl.pem", lists, NOW).level is level
