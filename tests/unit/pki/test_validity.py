"""Days that a certificate is valid: one count, whoever shows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dcfpca.doctor.checks import expiry
from dcfpca.identity import Role
from dcfpca.pki.ca_directory import create_authority
from dcfpca.pki.credential_files import issue_credentials, load_credentials
from dcfpca.pki.trust import whole_days

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("hours", "days"), [(90 * 24, 90), (90 * 24 - 0.1, 90), (90 * 24 + 0.1, 90), (30, 1), (1, 0)])
def test_days_are_counted_to_the_nearest(hours: float, days: int) -> None:
    assert whole_days(NOW + timedelta(hours=hours), NOW) == days


def test_an_expired_certificate_never_shows_a_day_left() -> None:
    assert whole_days(NOW - timedelta(seconds=1), NOW) == -1


def test_doctor_counts_as_the_lists_do(tmp_path: Path) -> None:
    authority = create_authority(tmp_path / "ca", "acme", NOW)
    files = issue_credentials(authority, Role.PARTICIPANT, "a", tmp_path / "a", now=NOW, days=90)
    later = NOW + timedelta(minutes=1)
    own = load_credentials(files.ca, files.certificate, files.key, now=later)
    assert whole_days(own.not_after, later) == 90
    assert "valid for 90 days" in expiry("expiry", "this certificate", own.certificate, later).sentence
