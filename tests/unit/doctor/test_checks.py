"""What doctor says of this machine: one fault each, made for real."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dcfpca.doctor import CheckResult, Level, fail, ok, warn, worst
from dcfpca.doctor.checks import check_clock, check_credentials, check_directory, check_version
from dcfpca.errors import BadInput
from dcfpca.identity import Role
from dcfpca.pki.ca_directory import Authority, create_authority
from dcfpca.pki.credential_files import SiteFiles, issue_credentials
from dcfpca.version import __version__
from dcfpca.wire.constants import PROTOCOL
from participant.commands.doctor import examine, judge_data, judge_policy
from participant.config import Config, load_config
from participant.data.facts import DataFacts
from participant.main import app
from participant.policy import SitePolicy

NOW = datetime.now(UTC)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return create_authority(tmp_path / "ca", "acme", NOW - timedelta(days=100))


def _issue(
    authority: Authority, out: Path, role: Role = Role.PARTICIPANT, *, age: int = 0, days: int = 30
) -> SiteFiles:
    return issue_credentials(authority, role, "site-a", out, now=NOW - timedelta(days=age), days=days)


def _of(findings: list[CheckResult], what: str) -> CheckResult:
    return next(finding for finding in findings if finding.what == what)


def test_good_credentials_are_ok_and_tell_their_days(authority: Authority, tmp_path: Path) -> None:
    files = _issue(authority, tmp_path / "a")
    own, found = check_credentials(files.ca, files.certificate, files.key, Role.PARTICIPANT, NOW)
    assert own is not None
    assert worst(found) is Level.OK
    assert "valid for 30 days" in _of(found, "expiry").sentence


def test_a_certificate_that_expires_soon_is_warned_of(authority: Authority, tmp_path: Path) -> None:
    files = _issue(authority, tmp_path / "a", age=25)
    own, found = check_credentials(files.ca, files.certificate, files.key, Role.PARTICIPANT, NOW)
    assert own is not None
    assert _of(found, "expiry").level is Level.WARN
    assert "renew" in _of(found, "expiry").remedy


def test_an_expired_certificate_fails(authority: Authority, tmp_path: Path) -> None:
    files = _issue(authority, tmp_path / "a", age=40)
    own, (finding,) = check_credentials(files.ca, files.certificate, files.key, Role.PARTICIPANT, NOW)
    assert own is None
    assert finding.level is Level.FAIL
    assert "expired" in finding.sentence
    assert finding.remedy


def test_a_ca_that_expires_soon_is_warned_of(tmp_path: Path) -> None:
    authority = create_authority(tmp_path / "ca", "acme", NOW - timedelta(days=95), days=100)
    files = _issue(authority, tmp_path / "a", days=3)
    _, found = check_credentials(files.ca, files.certificate, files.key, Role.PARTICIPANT, NOW)
    assert _of(found, "CA expiry").level is Level.WARN


def test_files_that_do_not_belong_together_fail(authority: Authority, tmp_path: Path) -> None:
    mine, other = _issue(authority, tmp_path / "a"), _issue(authority, tmp_path / "b")
    own, (finding,) = check_credentials(mine.ca, mine.certificate, other.key, Role.PARTICIPANT, NOW)
    assert own is None
    assert "does not belong" in finding.sentence


def test_the_wrong_role_and_a_missing_file_fail(authority: Authority, tmp_path: Path) -> None:
    files = _issue(authority, tmp_path / "a")
    assert check_credentials(files.ca, files.certificate, files.key, Role.OPERATOR, NOW)[0] is None
    _, (finding,) = check_credentials(tmp_path / "none", files.certificate, files.key, Role.PARTICIPANT, NOW)
    assert "cannot be read" in finding.sentence


def test_a_directory_that_is_a_file_or_has_no_room_fails(tmp_path: Path) -> None:
    (finding,) = check_directory("state", tmp_path / "new")
    assert finding.level is not Level.FAIL
    (finding,) = check_directory("results", tmp_path, needed=1 << 60)
    assert finding.level is Level.FAIL
    assert "are needed" in finding.sentence
    (tmp_path / "file").write_text("")
    (finding,) = check_directory("state", tmp_path / "file" / "below")
    assert (finding.level, finding.sentence) == (Level.FAIL, f"{tmp_path / 'file'} is not a directory")


@pytest.mark.parametrize(
    ("skew", "level"),
    [
        (0.2, Level.OK),
        (-4.9, Level.OK),
        (6.0, Level.WARN),
        (-60.0, Level.WARN),
        (300.0, Level.FAIL),
        (None, Level.WARN),
    ],
)
def test_clocks_are_judged_by_how_far_they_are_apart(skew: float | None, level: Level) -> None:
    assert check_clock(skew).level is level


def test_which_clock_is_ahead_is_told() -> None:
    assert "60.0 s behind" in check_clock(60.0).sentence
    assert "60.0 s ahead of" in check_clock(-60.0).sentence


def test_versions_warn_and_protocols_fail() -> None:
    assert check_version(__version__, PROTOCOL).level is Level.OK
    assert check_version("99.0", PROTOCOL).level is Level.WARN
    newer = check_version("99.0", PROTOCOL + 1)
    assert (newer.level, newer.remedy) == (Level.FAIL, "upgrade this side")
    assert check_version("0.0", PROTOCOL - 1).remedy == "upgrade the aggregator"


@pytest.mark.parametrize(
    ("policy", "level", "word"),
    [
        ({}, Level.OK, "cohorts of 3"),
        ({"methods": ()}, Level.FAIL, "refuses every run"),
        ({"private": True, "allow_export": True}, Level.WARN, "private wins"),
        ({"min_cohort": 2}, Level.WARN, "subtract"),
        ({"min_columns": 2}, Level.WARN, "reveals them"),
        ({"allow_plain": True}, Level.WARN, "sees this site's own updates"),
    ],
)
def test_a_policy_that_may_not_be_meant_is_told(policy: dict[str, object], level: Level, word: str) -> None:
    found = list(judge_policy(SitePolicy.model_validate(policy)))
    assert worst(found) is level
    assert word in found[0].sentence


def _config(tmp_path: Path, files: SiteFiles, data: str = "data.npy", missing: str = "refuse") -> Config:
    (tmp_path / "participant.toml").write_text(
        f'[aggregator]\naddress = "nowhere.invalid:1"\n[identity]\nca = "{files.ca}"\ncert = "{files.certificate}"\n'
        f'key = "{files.key}"\n[data]\npath = "{data}"\nmissing = "{missing}"\n[policy]\nmin_columns = 2\n'
        '[state]\ndir = "state"\n[results]\ndir = "results"\n'
    )
    return load_config(tmp_path / "participant.toml")


def test_data_that_makes_every_run_refused_fails(authority: Authority, tmp_path: Path) -> None:
    files = _issue(authority, tmp_path / "a")
    config = _config(tmp_path, files)
    (gaps,) = judge_data(config, DataFacts(3, 4, 1))
    assert (gaps.level, "refuses every run" in gaps.sentence) == (Level.FAIL, True)
    assert [one.level for one in judge_data(_config(tmp_path, files, missing="allow"), DataFacts(3, 4, 1))] == ["ok"]
    (few,) = judge_data(config, DataFacts(3, 1, 0))
    assert (few.level, "min_columns" in few.remedy) == (Level.FAIL, True)


def test_every_check_of_a_site_is_made_although_others_fail(authority: Authority, tmp_path: Path) -> None:
    found = list(examine(_config(tmp_path, _issue(authority, tmp_path / "a"))))
    levels = {finding.what: finding.level for finding in found}
    assert levels["data"] is Level.FAIL
    assert levels["DNS"] is Level.FAIL
    assert levels["certificate"] is Level.OK
    assert {"policy", "state", "results"} <= levels.keys()
    assert all(finding.remedy for finding in found if finding.level is not Level.OK)


def test_the_command_prints_a_line_each_and_exits_1_when_something_fails(authority: Authority, tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", np.ones((3, 4)))
    _config(tmp_path, _issue(authority, tmp_path / "a"))
    said = CliRunner().invoke(app, ["doctor", "--config", str(tmp_path / "participant.toml")])
    assert said.exit_code == 1
    assert "fail  DNS" in said.stdout
    assert "→ check its spelling" in said.stdout
    assert "3 features × 4 samples" in said.stdout


def test_the_worst_finding_is_the_verdict() -> None:
    findings = [ok("a", "x"), fail("c", BadInput("z", "do this")), warn("b", "y", "do")]
    assert worst(findings) is Level.FAIL
    assert worst(findings[:1]) is Level.OK
    assert worst([]) is Level.OK
    assert findings[1].remedy == "do this"
