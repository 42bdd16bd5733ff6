"""`dcfpca certs` as people use it: every command, its files, its JSON, its refusals."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dcfpca.cli.main import main
from dcfpca.identity import Role
from dcfpca.pki.credential_files import load_credentials
from dcfpca.pki.revocation import load_revocations
from dcfpca.pki.trust import load_certificates


@dataclass(frozen=True)
class Result:
    """What a person or a script sees of a command."""

    exit_code: int
    stdout: str
    stderr: str


Command = Callable[..., Result]


@pytest.fixture
def certs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `dcfpca certs` with the CA directory filled in."""

    def run(command: str, *words: str | Path) -> Result:
        place = [] if command == "request" else ["--dir", str(tmp_path / "ca")]
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["certs", command, *place, *(str(word) for word in words)])
        said = capsys.readouterr()
        return Result(int(ended.value.code or 0), said.out, said.err)

    return run


@pytest.fixture
def ca(certs: Command, tmp_path: Path) -> Path:
    assert certs("init", "--consortium", "acme").exit_code == 0
    return tmp_path / "ca"


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def refusal(result: Result) -> str:
    assert result.exit_code in (1, 2)
    assert result.stdout == ""
    assert result.stderr.splitlines()[-2].startswith("error: ")
    assert result.stderr.splitlines()[-1].startswith("hint: ")
    return result.stderr


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def request(certs: Command, out: Path, name: str = "hospital-a", *more: str) -> Any:
    return document(certs("request", "participant", name, "--consortium", "acme", "--out", out, "--json", *more))


def test_init_makes_a_ca_whose_key_is_private_and_keeps_it_the_second_time(certs: Command, ca: Path) -> None:
    assert mode(ca / "ca.key") == 0o600
    before = (ca / "ca.key").read_bytes()
    assert "already" in refusal(certs("init", "--consortium", "acme"))
    assert (ca / "ca.key").read_bytes() == before
    assert load_revocations(ca / "crl.pem", load_certificates(ca / "ca.crt"), datetime.now(UTC)) == frozenset()


def test_issue_writes_credentials_that_load_and_says_where_the_key_was_made(
    certs: Command, ca: Path, tmp_path: Path
) -> None:
    result = certs(
        "issue", "aggregator", "agg", "--host", "localhost", "--host", "127.0.0.1", "--out", tmp_path / "agg"
    )
    assert "private key was made here" in result.stdout
    site = tmp_path / "agg"
    found = load_credentials(
        site / "ca.crt", site / "agg.crt", site / "agg.key", now=datetime.now(UTC), role=Role.AGGREGATOR
    )
    assert str(found.identity) == "spiffe://acme/aggregator/agg"


def test_an_existing_key_is_replaced_only_by_force(certs: Command, ca: Path, tmp_path: Path) -> None:
    out, key = tmp_path / "op", tmp_path / "op" / "alice.key"
    document(certs("issue", "operator", "alice", "--out", out, "--json"))
    before = key.read_bytes()
    assert "in use" in refusal(certs("issue", "operator", "alice", "--out", out))
    assert "private key at" in refusal(certs("issue", "participant", "alice", "--out", out))
    assert key.read_bytes() == before
    document(certs("issue", "operator", "alice", "--out", out, "--force", "--json"))
    assert key.read_bytes() != before


def test_a_site_makes_its_key_and_the_ca_sees_only_the_request(certs: Command, ca: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    asked = request(certs, site)
    assert mode(site / "hospital-a.key") == 0o600
    assert sorted(path.name for path in site.iterdir()) == ["hospital-a.csr", "hospital-a.key"]
    expected = ["--expect", asked["identity"], "--expect-key", asked["key_fingerprint"]]
    result = certs("approve", asked["request"], "--out", site / "hospital-a.crt", *expected, "--yes")
    assert result.exit_code == 0
    assert "spiffe://acme/participant/hospital-a" in result.stderr
    assert asked["key_fingerprint"] in result.stderr
    found = load_credentials(site / "ca.crt", site / "hospital-a.crt", site / "hospital-a.key", now=datetime.now(UTC))
    assert found.identity.name == "hospital-a"
    assert not list(ca.rglob("hospital-a.key"))


def test_a_request_never_replaces_a_key_without_force(certs: Command, tmp_path: Path) -> None:
    request(certs, tmp_path)
    before = (tmp_path / "hospital-a.key").read_bytes(), (tmp_path / "hospital-a.csr").read_bytes()
    again = certs("request", "participant", "hospital-a", "--consortium", "acme", "--out", tmp_path)
    assert "private key at" in refusal(again)
    assert ((tmp_path / "hospital-a.key").read_bytes(), (tmp_path / "hospital-a.csr").read_bytes()) == before


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_approve_without_a_terminal_signs_nothing_unless_told_yes(
    certs: Command, ca: Path, tmp_path: Path, more: list[str]
) -> None:
    asked = request(certs, tmp_path / "site")
    assert "no terminal" in refusal(certs("approve", asked["request"], *more))
    assert document(certs("list", "--json"))["certificates"] == []


def test_approve_signs_the_identity_that_is_expected_and_no_other(certs: Command, ca: Path, tmp_path: Path) -> None:
    asked = certs("request", "operator", "hospital-a", "--consortium", "acme", "--out", tmp_path)
    assert asked.exit_code == 0
    meant = "spiffe://acme/participant/hospital-a"
    told = refusal(certs("approve", tmp_path / "hospital-a.csr", "--expect", meant, "--yes"))
    assert "asks for spiffe://acme/operator/hospital-a, not for" in told
    assert "is not an identity" in refusal(
        certs("approve", tmp_path / "hospital-a.csr", "--expect", "hospital-a", "-y")
    )
    assert document(certs("list", "--json"))["certificates"] == []


def test_approve_refuses_what_it_should_not_sign(certs: Command, ca: Path, tmp_path: Path) -> None:
    asked = request(certs, tmp_path / "first")
    rival = request(certs, tmp_path / "rival")
    assert "not the one expected" in refusal(certs("approve", asked["request"], "--expect-key", "00" * 32))
    document(certs("approve", asked["request"], "--yes", "--json"))
    assert "in use with another key" in refusal(certs("approve", rival["request"]))
    other = certs("request", "participant", "x", "--consortium", "other", "--out", tmp_path / "other")
    assert other.exit_code == 0
    assert "consortium 'other'" in refusal(certs("approve", tmp_path / "other" / "x.csr", "--yes"))
    assert "cannot be read" in refusal(certs("approve", tmp_path / "none.csr"))
    assert "not a PEM signing request" in refusal(certs("approve", ca / "ca.crt"))
    assert len(document(certs("list", "--json"))["certificates"]) == 1


def test_renew_keeps_the_key_and_the_hosts_and_lasts_longer(certs: Command, ca: Path, tmp_path: Path) -> None:
    out = tmp_path / "agg"
    first = document(certs("issue", "aggregator", "agg", "--host", "localhost", "--days", "1", "--out", out, "--json"))
    second = document(certs("renew", "aggregator", "agg", "--out", out, "--json"))
    assert second["key_fingerprint"] == first["key_fingerprint"]
    assert second["serial"] != first["serial"]
    assert second["days_left"] > 80
    found = load_credentials(out / "ca.crt", out / "agg.crt", out / "agg.key", now=datetime.now(UTC))
    assert found.not_after == datetime.fromisoformat(second["not_after"])


def test_revoke_by_name_puts_every_usable_certificate_on_the_list(certs: Command, ca: Path) -> None:
    first = document(certs("issue", "participant", "hospital-a", "--json"))
    second = document(certs("renew", "hospital-a", "--json"))
    other = document(certs("issue", "participant", "hospital-b", "--json"))
    revoked = document(certs("revoke", "hospital-a", "--reason", "keyCompromise", "--json"))
    assert set(revoked["revoked"]) == {first["serial"], second["serial"]}
    listed = load_revocations(ca / "crl.pem", load_certificates(ca / "ca.crt"), datetime.now(UTC))
    assert {mark.rpartition(":")[2] for mark in listed} == {first["serial"], second["serial"]}
    assert other["serial"] not in {mark.rpartition(":")[2] for mark in listed}


def test_a_revoked_key_is_neither_renewed_nor_approved_again(certs: Command, ca: Path, tmp_path: Path) -> None:
    asked = request(certs, tmp_path / "site")
    document(certs("approve", asked["request"], "--yes", "--json"))
    document(certs("revoke", "hospital-a", "--json"))
    assert "was revoked" in refusal(certs("renew", "hospital-a"))
    assert "was revoked" in refusal(certs("approve", asked["request"]))
    assert "no certificate that can still be used" in refusal(certs("revoke", "hospital-a"))


def test_one_of_two_certificates_is_revoked_by_a_short_serial_or_fingerprint(certs: Command, ca: Path) -> None:
    first = document(certs("issue", "participant", "hospital-a", "--json"))
    second = document(certs("renew", "hospital-a", "--json"))
    assert document(certs("revoke", first["serial"][:12], "--json"))["revoked"] == [first["serial"]]
    assert document(certs("revoke", second["fingerprint"][:12], "--json"))["revoked"] == [second["serial"]]
    assert "no certificate has" in refusal(certs("revoke", "hospital-z"))


def test_a_name_with_two_roles_needs_the_role(certs: Command, ca: Path, tmp_path: Path) -> None:
    document(certs("issue", "participant", "north", "--out", tmp_path / "p", "--json"))
    document(certs("issue", "operator", "north", "--out", tmp_path / "o", "--json"))
    assert "more than one role" in refusal(certs("revoke", "north"))
    assert len(document(certs("revoke", "operator", "north", "--json"))["revoked"]) == 1


def test_list_shows_names_roles_days_and_revocations(certs: Command, ca: Path) -> None:
    document(certs("issue", "participant", "hospital-a", "--days", "30", "--json"))
    document(certs("issue", "operator", "alice", "--json"))
    document(certs("revoke", "alice", "--json"))
    shown = document(certs("list", "--json"))
    assert shown["consortium"] == "acme"
    lines = [(c["name"], c["role"], round(c["days_left"]), c["revoked"]) for c in shown["certificates"]]
    assert lines == [("hospital-a", "participant", 30, False), ("alice", "operator", 90, True)]
    table = certs("list").stdout
    assert "hospital-a" in table
    assert "revoked" in table
    (ca / "ca.key").unlink()
    assert certs("list").exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["issue", "participant", "Hospital A"],
        ["issue", "participant", "ca"],
        ["issue", "participant", "a", "--host", "localhost"],
        ["issue", "aggregator", "a"],
        ["issue", "participant", "a", "--days", "399"],
        ["renew", "nobody"],
        ["revoke", "participant", "nobody"],
        ["revoke", "boss", "nobody"],
    ],
)
def test_bad_wishes_are_refused_and_leave_no_trace(certs: Command, ca: Path, words: list[str]) -> None:
    before = sorted(ca.rglob("*"))
    result = certs(*words)
    refusal(result)
    assert sorted(ca.rglob("*")) == before


@pytest.mark.parametrize("words", [["issue", "boss", "a"], ["revoke"], ["list", "--unknown"]])
def test_misuse_exits_with_2(certs: Command, ca: Path, words: list[str]) -> None:
    assert certs(*words).exit_code == 2


@pytest.mark.parametrize("days", ["0", "-3", "7301", "100000000"])
def test_a_ca_of_no_sensible_lifetime_is_not_made(certs: Command, tmp_path: Path, days: str) -> None:
    assert "1 to 7300 days" in refusal(certs("init", "--consortium", "acme", "--days", days))
    assert not (tmp_path / "ca").exists()


def test_commands_without_a_ca_say_how_to_make_one(certs: Command) -> None:
    for words in (["list"], ["issue", "operator", "alice"], ["revoke", "alice"]):
        assert "dcfpca certs init" in refusal(certs(*words))


def test_a_ca_key_that_others_can_read_is_not_used(certs: Command, ca: Path) -> None:
    (ca / "ca.key").chmod(0o644)
    assert "other users" in refusal(certs("issue", "operator", "alice"))
