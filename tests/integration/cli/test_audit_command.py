"""The audit log over real mutual TLS, by the command itself, with an operator's certificate and a participant's."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aggregator.store import audit
from dcfpca.cli.main import command_tree, main
from dcfpca.identity import Role
from dcfpca.pki.credential_files import SiteFiles
from dcfpca.v1 import admin_pb2
from tests.support.services.federation import to_toml
from tests.support.services.service import Service, service

SPEC = b'{"rows": 4, "rank": 1, "participants": ["ann", "bob", "cem"], "enrol_seconds": 600}'


@pytest.fixture
async def aggregator(tmp_path: Path) -> AsyncIterator[Service]:
    async with service(tmp_path) as made:
        yield made


@pytest.fixture
async def run_id(aggregator: Service) -> str:
    request = admin_pb2.ProposeRunRequest(spec=SPEC, request_id=uuid.uuid4().hex)
    made: str = (await aggregator.operator().ProposeRun(request)).run_id
    await aggregator.operator().AbortRun(admin_pb2.AbortRunRequest(run_id=made, reason="enough"))
    return made


def flags(aggregator: Service, files: SiteFiles) -> list[str]:
    given = {"aggregator": f"127.0.0.1:{aggregator.port}", "ca": files.ca, "cert": files.certificate, "key": files.key}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


async def typed(*words: str) -> int:
    """The exit code of the command, typed while the service goes on."""

    def call() -> int:
        try:
            main(words)
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0

    return await asyncio.to_thread(call)


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.PARTICIPANT])
async def test_operators_and_participants_verify_the_log(
    aggregator: Service, run_id: str, role: Role, capsys: pytest.CaptureFixture[str]
) -> None:
    files = aggregator.identity(role, "ann")
    assert await typed("run", "audit", run_id, "--verify", "--json", *flags(aggregator, files)) == 0
    document = json.loads(capsys.readouterr().out)
    assert [entry["action"] for entry in document["entries"]] == ["run_proposed", "run_aborted"]
    assert document["verified"] == document["head"]["sequence"] == 2
    assert all("operator/op" in entry["actor"] for entry in document["entries"])


async def test_a_participant_verifies_a_log_of_which_others_lines_are_withheld(
    aggregator: Service, run_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record = aggregator.run_registry.store.record
    for name in ("ann", "bob"):
        actor = f"spiffe://acme/participant/{name}"
        await record("participant_refused", actor=actor, run_id=run_id, reasons=[f"{name} has 7 columns"])
    files = aggregator.identity(Role.PARTICIPANT, "ann")
    assert await typed("run", "audit", run_id, "--verify", "--json", *flags(aggregator, files)) == 0
    told = capsys.readouterr().out
    assert json.loads(told)["verified"] == 4
    assert [entry["actor"].rpartition("/")[2] for entry in json.loads(told)["entries"]] == ["op", "op", "ann"]
    assert "ann has 7 columns" in told
    assert "bob" not in told


async def test_a_participant_that_was_not_invited_reads_nothing_of_a_run(
    aggregator: Service, run_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = aggregator.identity(Role.PARTICIPANT, "stranger")
    assert await typed("run", "audit", run_id, "--verify", *flags(aggregator, files)) == 1
    assert "the audit log has no entry of run" in capsys.readouterr().err


async def test_a_site_names_its_own_configuration(
    aggregator: Service, run_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = aggregator.identity(Role.PARTICIPANT, "ann")
    tables = {
        "aggregator": {"address": f"127.0.0.1:{aggregator.port}"},
        "identity": {"ca": str(files.ca), "cert": str(files.certificate), "key": str(files.key)},
        "data": {"path": "data.npy"},
    }
    (tmp_path / "participant.toml").write_text(to_toml(tables))
    assert await typed("run", "audit", run_id, "--verify", "--config", str(tmp_path / "participant.toml")) == 0
    assert "the log is complete: 2 entries" in capsys.readouterr().err


def commands_of_operators() -> list[tuple[str, ...]]:
    """Every command that asks AdminService, but the one for participants as well, with as much as it must be given."""
    words = []
    for path in ("run", "participants"):
        for name, command in command_tree().commands[path].commands.items():  # type: ignore[attr-defined]
            needed = [one.opts[0] for one in command.params if one.required]
            given = [word for option in needed for word in (option, "some")[not option.startswith("-") :]]
            words.append((path, name, *given))
    return [one for one in words if one[:2] != ("run", "audit")]


@pytest.mark.parametrize("words", commands_of_operators(), ids=lambda words: "-".join(words[:2]))
async def test_every_other_command_says_in_a_sentence_that_it_needs_an_operator(
    aggregator: Service,
    words: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    files = aggregator.identity(Role.PARTICIPANT, "ann")
    more = ["--rank", "1"] if words[1] == "start" else []
    assert await typed(*words, *more, *flags(aggregator, files)) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "spiffe://acme/participant/ann has the role participant, which may not call" in said.err
    assert "use a certificate with the role operator" in said.err
    assert said.err.count("error:") == 1
    assert aggregator.run_registry.runners == {}


async def test_a_run_that_the_log_does_not_know_is_said_to_be_missing(
    aggregator: Service, run_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = aggregator.identity(Role.PARTICIPANT, "ann")
    assert await typed("run", "audit", "20300101-00000000", "--verify", *flags(aggregator, files)) == 1
    assert "the audit log has no entry of run" in capsys.readouterr().err


async def test_a_log_that_was_cut_off_is_noticed_by_who_noted_its_end(
    aggregator: Service, run_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = aggregator.identity(Role.PARTICIPANT, "ann")
    words = ("run", "audit", run_id, "--verify", "--seen", str(tmp_path / "seen"), *flags(aggregator, files))
    assert await typed(*words) == 0
    await aggregator.run_registry.store.record("something_else")
    assert await typed(*words) == 0, "a log that has grown is as it was"
    noted = (tmp_path / "seen").read_bytes()
    await aggregator.run_registry.store.do(
        lambda store: store.connection.execute("DELETE FROM audit WHERE sequence > 2")
    )
    assert await typed(*words) == 1
    assert "cut off or rewritten" in capsys.readouterr().err
    assert (tmp_path / "seen").read_bytes() == noted


async def test_a_log_written_anew_by_the_aggregator_itself_is_noticed(
    aggregator: Service, run_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It can sign whatever it likes; it cannot make others forget what they saw."""
    files = aggregator.identity(Role.PARTICIPANT, "ann")
    words = ("run", "audit", run_id, "--verify", "--seen", str(tmp_path / "seen"), *flags(aggregator, files))
    assert await typed(*words) == 0
    await aggregator.run_registry.store.do(
        lambda store: store.connection.execute("DELETE FROM audit WHERE sequence > 1")
    )
    await aggregator.run_registry.store.record("run_resumed", actor="spiffe://acme/operator/op", run_id=run_id)
    kept = await aggregator.run_registry.store.do(lambda store: audit.entries(store.connection))
    assert [entry.action for entry in kept] == ["run_proposed", "run_resumed"]
    assert await typed(*words) == 1
    assert "entry 2" in capsys.readouterr().err


@pytest.mark.parametrize("verify", [[], ["--verify"]])
async def test_a_run_may_be_named_by_latest_or_by_its_beginning(
    aggregator: Service, run_id: str, verify: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    own = flags(aggregator, aggregator.identity(Role.OPERATOR, "op"))
    for name in ("latest", run_id[:11], run_id):
        assert await typed("run", "audit", name, *verify, "--json", *own) == 0
        assert json.loads(capsys.readouterr().out)["run_id"] == run_id
