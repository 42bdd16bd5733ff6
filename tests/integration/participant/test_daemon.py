"""The daemon with the real aggregator: killed at every step, renewed, turned away, approved by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dcfpca.identity import Role
from dcfpca.methods import method_of
from dcfpca.pki.ca_directory import create_authority
from dcfpca.pki.credential_files import issue_credentials
from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.spec import parse_spec
from participant.state.ledger import verify
from participant.state.store import Store
from tests.support.services.federation import Federation, relative, running_federation
from tests.support.services.processes import Process

NAMES = ("alpha", "beta", "gamma")
ROWS, RANK = 24, 2
SPEC: dict[str, Any] = {
    "rank": RANK,
    "rounds": 8,
    "tolerance": 0.0,
    "participants": NAMES,
    "round_seconds": 600.0,
    "enrol_seconds": 300.0,
}
STEPS = ("set-up/key", "set-up/roster", "set-up/shares", "3.1/opened", "finished")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    problem = generate(Recipe(rows=ROWS, columns=33, rank=RANK, sparsity=0.05, counts=(14, 10, 9)), 3)
    sites = {name: own.array for name, own in zip(NAMES, problem.sites(), strict=True)}
    with running_federation(tmp_path_factory.mktemp("federation"), sites) as made:
        yield made


def state_of(federation: Federation, name: str) -> Path:
    return federation.root / "sites" / name / "state"


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_site_killed_at_any_step_goes_on_with_the_same_bytes_and_the_same_result(
    federation: Federation, step: str
) -> None:
    before = federation.processes["beta"]
    seen = len(before.lines)
    run = federation.propose(**SPEC)
    before.await_action("assignment_received", after=seen, key=f"{run}/{step}")
    before.kill()
    federation.start_site("beta")
    view = federation.finish(run)
    assert all(list(round.survivors) == sorted(NAMES) for round in view.rounds)
    alone = federation.simulate(view, NAMES)
    written = federation.result("beta", run)
    assert relative(written.L, alone.results[1].L) < 1e-10
    expected = method_of(parse_spec(view.spec)).model(alone.consensus)["U"]
    assert relative(federation.model(run), expected) < 1e-10
    assert_ledger_is_whole(state_of(federation, "beta"), run)


def assert_ledger_is_whole(state: Path, run: str) -> None:
    """Unaltered, and under every attempt one message of each kind left."""
    store = Store(state)
    entries = list(store.ledger.entries())
    verify(entries)
    left = [(e.item.round, e.item.attempt, e.item.kind) for e in entries if e.item.run_id == run]
    rounds = [place for place in left if place[0] is not None]
    assert len(set(rounds)) == len(rounds)
    store.close()


@pytest.mark.slow
def test_the_aggregators_certificate_is_renewed_during_a_run_without_losing_a_round(federation: Federation) -> None:
    aggregator = federation.processes["agg"]
    seen = len(aggregator.lines)
    run = federation.propose(**SPEC | {"rounds": 60, "closing_rounds": False})
    aggregator.await_action("consensus_reached", after=seen, round=2)
    out, hosts = federation.files["agg"].key.parent, ["localhost", "127.0.0.1"]
    now, authority = datetime.now(UTC), federation.authority
    issue_credentials(authority, Role.AGGREGATOR, "agg", out, now=now, hosts=hosts, days=29, force=True)
    aggregator.await_action("credentials_reloaded", after=seen)
    view = federation.finish(run)
    assert len(view.rounds) == 61
    assert all(len(round.survivors) == len(NAMES) for round in view.rounds)


@pytest.mark.slow
def test_certificates_and_keys_are_renewed_during_a_run_without_losing_a_round(federation: Federation) -> None:
    site = federation.processes["gamma"]
    seen = len(site.lines)
    run = federation.propose(**SPEC | {"rounds": 60, "closing_rounds": False})
    # Not "update_sent": the last site's answer opens the next round, which may overtake the reply to another's.
    site.await_action("step_computed", after=seen, round=2)
    files = federation.files["gamma"]
    now = datetime.now(UTC)
    issue_credentials(federation.authority, Role.PARTICIPANT, "gamma", files.key.parent, now=now, days=29, force=True)
    site.await_action("credentials_renewed", after=seen)
    site.await_action("connected", after=seen)
    view = federation.finish(run)
    assert len(view.rounds) == 61
    assert all(len(round.survivors) == len(NAMES) for round in view.rounds)


@pytest.mark.slow
def test_a_second_daemon_with_the_same_certificate_ends_with_a_sentence(federation: Federation) -> None:
    home = federation.root / "sites" / "alpha"
    config = (home / "participant.toml").read_text().replace('dir = "state"', 'dir = "other-state"')
    (home / "twin.toml").write_text(config)
    twin = Process(
        "tests.support.services.impatient", ["serve", "--config", str(home / "twin.toml")], federation.root / "twin.log"
    )
    assert twin.wait(60) == 1
    assert "another daemon with this participant's certificate is connected" in twin.text()
    assert twin.text().count('"already_connected"') == 1
    assert federation.processes["alpha"].is_alive


def test_a_second_daemon_on_one_state_directory_ends_with_a_sentence(federation: Federation) -> None:
    ended = federation.site_command("alpha", "serve")
    assert ended.returncode == 1
    assert "another participant daemon uses the state directory" in ended.stderr
    assert '"hint": ' in ended.stderr


@pytest.mark.slow
def test_the_ledger_answers_while_the_daemon_runs(federation: Federation) -> None:
    run = federation.run(**SPEC | {"rounds": 2}).run_id
    federation.processes["alpha"].await_action("results_written", run=run)
    shown = federation.site_command("alpha", "ledger", "--verify", "--run", run)
    assert shown.returncode == 0
    assert "masked update" in shown.stdout
    assert "plain" not in shown.stdout
    listed = federation.site_command("alpha", "results", "--run", run, "--json")
    assert f'"run": "{run}"' in listed.stdout


@pytest.mark.slow
def test_a_run_waits_for_approval_by_hand(federation: Federation) -> None:
    problem = generate(Recipe(rows=ROWS, columns=12, rank=RANK), 5)
    federation.add_site("careful", problem.L + problem.S, manual_approval=True)
    site = federation.start_site("careful")
    site.await_action("connected")
    # Plain: a secure cohort with one site more than an earlier one over the same data would be refused.
    changes = {"rounds": 1, "aggregation": "plain", "participants": (*NAMES, "careful")}
    run = federation.propose(**SPEC | changes)
    site.await_action("approval_awaited", run=run)
    assert run in federation.site_command("careful", "approve").stdout
    refused = federation.site_command("careful", "approve", "no-such-run")
    assert refused.returncode == 1
    assert "error: no run no-such-run waits" in refused.stderr
    unnamed = federation.site_command("careful", "approve", run)
    assert (unnamed.returncode, "--by NAME" in unnamed.stderr) == (2, True)
    assert federation.site_command("careful", "approve", run, "--by", "Ada Byron", "--expires", "1h").returncode == 0
    assert len(federation.finish(run).enrolled) == 4
    shown = federation.site_command("careful", "ledger", "--verify", "--all", "--json").stdout
    entries = [entry for entry in json.loads(shown)["entries"] if entry["type"].startswith("approval")]
    assert [entry["type"] for entry in entries] == ["approval", "approval used"]
    assert all("by Ada Byron, until " in entry["detail"] for entry in entries)
    declined = federation.propose(**SPEC | changes)
    site.await_action("approval_awaited", run=declined)
    said = federation.site_command("careful", "reject", declined, "--by", "Ada Byron", "--reason", "no ethics vote")
    assert said.returncode == 0
    view = federation.follow(declined)
    assert "a person at the site declined it: no ethics vote" in str(view)
    assert "Ada" not in str(view)
    assert site.stop() == 0


@pytest.mark.slow
def test_an_absent_aggregator_is_told_once_and_found_when_it_is_there(tmp_path: Path) -> None:
    with Federation(tmp_path) as made:
        made.start_aggregator()
        made.aggregator.stop()
        made.add_site("alpha", generate(Recipe(rows=8, columns=9, rank=1), 0).L)
        site = made.start_site("alpha")
        site.await_action("unreachable")
        made.start_aggregator()
        site.await_action("connected")
        assert sum(line["action"] == "unreachable" for line in site.events()) == 1
        assert site.stop() == 0


def serve_once(made: Federation, name: str) -> Process:
    process = made.start_site(name)
    assert process.wait() == 1
    return process


@pytest.mark.slow
def test_troubles_with_certificates_end_the_daemon_with_the_sentence_that_fits(tmp_path: Path) -> None:
    data, now = generate(Recipe(rows=8, columns=9, rank=1), 0).L, datetime.now(UTC)
    with Federation(tmp_path) as made:
        made.identity(Role.AGGREGATOR, "agg", hosts=["localhost"], force=True)
        made.start_aggregator()
        made.identity(Role.OPERATOR, "operator-as-site")
        former = create_authority(tmp_path / "former-ca", "acme", now - timedelta(days=60))
        then = now - timedelta(days=40)
        made.files["late"] = issue_credentials(former, Role.PARTICIPANT, "late", tmp_path / "late", now=then, days=30)
        stranger = create_authority(tmp_path / "other-ca", "acme", now)
        made.files["foreign"] = issue_credentials(stranger, Role.PARTICIPANT, "foreign", tmp_path / "foreign", now=now)
        for name in ("late", "operator-as-site", "foreign", "misled"):
            made.add_site(name, data)
        assert "expired on" in serve_once(made, "late").text()
        assert "role operator" in serve_once(made, "operator-as-site").text()
        assert "not issued by the CA" in serve_once(made, "foreign").text()
        assert "certificate is not for the host '127.0.0.1'" in serve_once(made, "misled").text()


def test_bad_data_and_config_end_the_daemon_with_a_sentence(tmp_path: Path) -> None:
    with Federation(tmp_path) as made:
        made.add_site("alpha", generate(Recipe(rows=8, columns=9, rank=1), 0).L, via="localhost:1")
        home = tmp_path / "sites" / "alpha"
        (home / "data.npy").write_bytes(b"")
        ended = made.site_command("alpha", "check")
        assert ended.returncode == 2
        assert "data.npy is empty" in ended.stderr
        config = home / "participant.toml"
        config.write_text(config.read_text() + "[surprise]\nkey = 1\n")
        ended = made.site_command("alpha", "serve")
        assert ended.returncode == 2
        assert "surprise: there is no such key" in ended.stderr
