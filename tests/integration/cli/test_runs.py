"""The operator's command against a real aggregator and real sites, as a person would type it."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import pytest
from rich.console import Console

import dcfpca
from dcfpca.cli.main import main
from dcfpca.operator.client import Operator
from dcfpca.operator.connection import connect_settings, connected
from dcfpca.rpca.synthetic import Problem
from dcfpca.scaffold.background import until
from dcfpca.scaffold.demo import draw, score
from dcfpca.scaffold.local_consortium import Consortium, LocalPlan, create_consortium, start_consortium, stop_consortium
from dcfpca.text.run_progress import RunHistory, RunProgress
from dcfpca.text.run_watch import follow_run
from dcfpca.v1.admin_pb2 import ListRunsRequest
from dcfpca.v1.admin_pb2_grpc import AdminServiceStub

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_loops")]

NAMES = ("a", "b", "c")
PRIVATE = "c"
START = (
    "run",
    "start",
    "--rank",
    "3",
    "--rounds",
    "40",
    "--participants",
    ",".join(NAMES),
    "--round-seconds",
    "30",
    "--set",
    "scaling=none",
)


@dataclass(frozen=True)
class Stage:
    consortium: Consortium
    problem: Problem

    @property
    def config(self) -> str:
        return str(self.consortium.operator_config)

    def operator(self) -> AbstractContextManager[Operator]:
        flags = dict.fromkeys(("aggregator", "ca", "cert", "key"))
        return connected(connect_settings(flags, self.consortium.operator_config))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    problem = draw(rows=100, columns=150, rank=3, sites=3, seed=1)
    directory = tmp_path_factory.mktemp("federation")
    data = {name: directory / "sites" / name / "data.npy" for name in NAMES}
    policies = {name: {"policy": {"private": name == PRIVATE, "allow_export": True}} for name in NAMES}
    consortium = create_consortium(directory, LocalPlan("demo", data, participants=policies))
    for name, own in zip(NAMES, problem.sites(), strict=True):
        np.save(data[name], own.array)
    try:
        start_consortium(consortium, lambda _: None)
        yield Stage(consortium, problem)
    finally:
        stop_consortium(consortium, lambda _: None)


def _connected(operator: Operator) -> set[str]:
    return {one.name for one in operator.participants() if one.state == "connected"}


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict:
        return json.loads(self.out)


class Terminal:
    """Types commands; each has its exit code and what it said."""

    def __init__(self, stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
        self._stage = stage
        self._capsys = capsys

    def type(self, *words: str) -> Said:
        self._capsys.readouterr()
        code = 0
        try:
            main([*words, "--config", self._stage.config])
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = self._capsys.readouterr()
        return Said(code, said.out, said.err)


@pytest.fixture
def terminal(stage: Stage, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(stage, capsys)


def test_participants_are_listed_with_state_rows_and_days_left(terminal: Terminal) -> None:
    listed = json.loads(terminal.type("participants", "list", "--json").out)
    assert [(one["name"], one["state"], one["rows"]) for one in listed] == [(name, "connected", 100) for name in NAMES]
    assert all(one["certificate_days"] > 0 for one in listed)
    assert "connected" in terminal.type("participants", "list").out


def test_a_watched_run_finishes_and_is_one_json_document(terminal: Terminal, stage: Stage) -> None:
    said = terminal.type(*START, "--watch", "--json")
    assert said.code == 0
    run = said.document
    assert run["status"] == "finished"
    assert [one["round"] for one in run["rounds"]] == list(range(run["round"] + 1))
    assert run["spec"]["aggregation"] == "secure"
    assert {one["participant"]: one["private"] for one in run["enrolled"]} == {"a": False, "b": False, "c": True}
    assert "round 1 " in said.err
    results = {name: stage.consortium.results(name, run["run_id"]) for name in NAMES}
    sites = stage.consortium.sites.values()
    until(lambda: all((p / "manifest.json").exists() for p in results.values()), sites, "results", 30)
    assert score(stage.problem, results).low_rank_error < 1e-6


def test_an_unwatched_run_prints_its_identifier_alone_and_can_be_found_again(terminal: Terminal) -> None:
    started = terminal.type(*START, "--label", "spring")
    run_id = started.out.strip()
    assert started.out == f"{run_id}\n"
    watched = terminal.type("run", "watch", run_id)
    assert (watched.code, watched.out) == (0, "")
    listed = json.loads(terminal.type("run", "list", "--json").out)
    assert listed[0]["run_id"] == run_id
    assert (listed[0]["label"], listed[0]["status"]) == ("spring", "finished")
    assert run_id in terminal.type("run", "list").out
    assert len(json.loads(terminal.type("run", "list", "--limit", "1", "--json").out)) == 1
    shown = terminal.type("run", "show", run_id)
    assert "spring" in shown.out
    assert terminal.type("run", "show", run_id, "--json").document["run_id"] == run_id
    aborted = terminal.type("run", "abort", run_id, "--json")
    assert aborted.document["status"] == "finished"


def test_a_program_sees_the_run_that_a_person_sees(stage: Stage, terminal: Terminal, tmp_path: Path) -> None:
    with dcfpca.Federation.connect(stage.config) as federation:
        run = federation.propose(rank=3, rounds=40, participants=list(NAMES), round_seconds=30)
        rounds = list(run.watch())
        model, snapshot = run.result(), run.snapshot()
        assert federation.run("latest").run_id == federation.run(run.run_id[:13]).run_id == run.run_id
        days = {one.certificate_days for one in federation.participants()}
    shown = terminal.type("run", "show", run.run_id, "--json").document
    assert [one.number for one in rounds] == [one["round"] for one in shown["rounds"]]
    assert model.U.shape == (100, 3)
    np.testing.assert_allclose(model.U.T @ model.U, np.eye(3), atol=1e-8)
    assert model.verdict is not None
    assert model.verdict.sentence == shown["verdict"]["sentence"]
    assert set(snapshot.enrolled) == set(NAMES)

    # One count of rounds and one of days, wherever they are shown.
    listed = json.loads(terminal.type("run", "list", "--json").out)
    held = {one["rounds_held"] for one in listed if one["run_id"] == run.run_id}
    assert held == {rounds[-1].number} == {snapshot.rounds} == {shown["rounds_held"]}
    terminal.type("run", "report", run.run_id, "--out", str(tmp_path / "run.html"))
    assert f"<dt>rounds</dt><dd>{snapshot.rounds}</dd>" in (tmp_path / "run.html").read_text()
    assert days == {one["certificate_days"] for one in json.loads(terminal.type("participants", "list", "--json").out)}


def test_a_program_is_told_what_to_change(stage: Stage) -> None:
    with dcfpca.Federation.connect(stage.config) as federation:
        with pytest.raises(dcfpca.DcfpcaError, match="rouns"):
            federation.propose(rank=3, rouns=4)
        with pytest.raises(dcfpca.DcfpcaError, match=r"no run|not found|no such run") as refused:
            federation.run("19990101-00000000")
    assert refused.value.hint
    with pytest.raises(dcfpca.DcfpcaError, match="lacks: ca, cert, key"):
        dcfpca.Federation.connect(aggregator="localhost:1")


def test_export_brings_the_model_and_public_reconstructions_and_names_the_refusal(
    terminal: Terminal, stage: Stage, tmp_path: Path
) -> None:
    run_id = terminal.type(*START, "--export", "--watch", "--json").document["run_id"]
    out = tmp_path / "out"
    said = terminal.type("run", "export", run_id, "--out", str(out), "--json")
    assert said.code == 0
    assert {file["name"] for file in said.document["files"]} == {
        "U.npy",
        "singular_values.npy",
        *(f"{name}/{artifact}" for name in ("a", "b") for artifact in ("L.npy", "S.npz")),
    }
    for file in said.document["files"]:
        assert hashlib.sha256((out / file["name"]).read_bytes()).hexdigest() == file["sha256"]
    assert [one["participant"] for one in said.document["refusals"]] == [PRIVATE]
    assert f"{PRIVATE} refused: " in said.err
    assert not (out / PRIVATE).exists()
    U = np.load(out / "U.npy")
    assert U.shape == (100, 3)
    site = stage.consortium.results("a", run_id)
    assert (out / "a" / "L.npy").read_bytes() == (site / "L.npy").read_bytes()
    again = terminal.type("run", "export", run_id, "--out", str(out))
    assert again.code == 2
    assert "not an empty directory" in again.err


def test_without_an_announced_export_only_the_model_is_written(terminal: Terminal, tmp_path: Path) -> None:
    run_id = terminal.type(*START, "--watch", "--json").document["run_id"]
    said = terminal.type("run", "export", run_id, "--out", str(tmp_path / "out"))
    assert said.code == 0
    assert "did not announce exports" in said.err
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"U.npy", "singular_values.npy", "manifest.json"}


@pytest.mark.parametrize(
    "words", [("show",), ("watch",), ("abort",), ("resume",), ("delete",), ("export", "--out", "nowhere")]
)
def test_an_unknown_run_is_not_found(terminal: Terminal, words: tuple[str, ...]) -> None:
    said = terminal.type("run", words[0], "no-such-run", *words[1:])
    assert (said.code, said.out) == (1, "")
    assert "no-such-run" in said.err
    assert "hint: " in said.err


def test_a_spec_that_cannot_be_is_misuse(terminal: Terminal) -> None:
    said = terminal.type("run", "start", "--rank", "40", "--rows", "30")
    assert (said.code, said.out) == (2, "")
    assert "rank 40 is larger than the 30 features" in said.err


def test_rows_that_contradict_the_sites_are_refused_with_both_numbers(terminal: Terminal) -> None:
    said = terminal.type(*START, "--rows", "101", "--watch", "--json")
    assert said.code == 1
    assert "101" in said.err
    assert "100" in said.err


def test_sites_that_do_not_allow_plain_refuse_by_name_and_the_command_fails(terminal: Terminal) -> None:
    said = terminal.type(*START, "--aggregation", "plain", "--watch", "--json")
    assert said.code == 1
    assert said.document["status"] == "failed"
    assert {one["participant"] for one in said.document["refusals"]} == set(NAMES)
    assert "error: " in said.err
    for refusal in said.document["refusals"]:
        assert said.err.count(f"refused by {refusal['participant']} (enrolment)") == 1
    (reason,) = {sentence for one in said.document["refusals"] for sentence in one["reasons"]}
    assert said.err.count(reason) == len(NAMES), "each refusal is told once"


def test_a_running_run_can_be_aborted_with_a_reason(terminal: Terminal) -> None:
    words = ("run", "start", "--rank", "2", "--participants", "a,b,absent", "--enrol-seconds", "600")
    run_id = terminal.type(*words).out.strip()
    said = terminal.type("run", "abort", run_id, "--reason", "changed our mind")
    assert said.code == 0
    watched = terminal.type("run", "watch", run_id)
    assert watched.code == 1
    assert "changed our mind" in watched.err
    refused = terminal.type("run", "resume", run_id)
    assert refused.code == 1


def test_a_participants_certificate_is_not_permitted_to_operate(stage: Stage) -> None:
    site = stage.consortium.sites["a"].directory
    address = stage.consortium.address
    credentials = grpc.ssl_channel_credentials(*((site / name).read_bytes() for name in ("ca.crt", "a.key", "a.crt")))
    with grpc.secure_channel(address, credentials) as channel, pytest.raises(grpc.RpcError) as caught:
        AdminServiceStub(channel).ListRuns(ListRunsRequest(), timeout=10)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_watch_survives_the_death_of_the_aggregator_and_says_so_once(terminal: Terminal, stage: Stage) -> None:
    words = ("run", "start", "--rank", "2", "--participants", "a,b,absent", "--enrol-seconds", "600")
    run_id = terminal.type(*words).out.strip()
    consortium, told = stage.consortium, io.StringIO()
    strikes = iter((True,))

    def strike(history: RunHistory) -> None:
        if next(strikes, False):
            consortium.aggregator.kill()
            consortium.start_aggregator()
            with stage.operator() as other:
                other.abort(run_id, "enough")

    with stage.operator() as operator, RunProgress(Console(file=told, width=200)) as progress:
        view = follow_run(operator, run_id, progress, on_update=strike)
        assert (view.status, view.reason) == ("aborted", "aborted by operator: enough")
        assert told.getvalue().count("was lost; trying again") == 1
        assert told.getvalue().count("connected again") == 1
        sites = consortium.sites.values()
        until(lambda: _connected(operator) == set(NAMES), sites, "the sites' return", 60)


def test_a_run_that_waits_in_vain_pauses_with_the_reason_and_resumes_in_the_same_round(
    terminal: Terminal, stage: Stage
) -> None:
    # Long enough that a busy machine closes every round in time: only the killed sites may miss it.
    words = (*START, "--tolerance", "0", "--rounds", "25", "--round-seconds", "15", "--set", "patience=1")
    run_id = terminal.type(*words, "--set", "closing_rounds=false").out.strip()
    sites = stage.consortium.sites
    strikes = iter((True,))

    def strike(history: RunHistory) -> None:
        if history.last_round >= 2 and next(strikes, False):
            for name in ("a", "b"):
                sites[name].kill()

    with stage.operator() as operator, RunProgress(Console(file=io.StringIO())) as progress:
        paused = follow_run(operator, run_id, progress, on_update=strike)
        assert paused.status == "paused"
        assert "longer than the spec's patience" in paused.reason
        assert not any(sites[name].is_running() for name in ("a", "b")), "the run paused before they were killed"
        watched = terminal.type("run", "watch", run_id)
        assert watched.code == 1
        assert f"hint: when the cause is removed: `dcfpca run resume {run_id}`" in watched.err
        for name in ("a", "b"):
            stage.consortium.start_site(name)
        until(lambda: _connected(operator) == set(NAMES), sites.values(), "the sites' return", 60)
    resumed = terminal.type("run", "resume", run_id, "--watch", "--json")
    assert resumed.code == 0, resumed.err
    assert [one["round"] for one in resumed.document["rounds"]] == list(range(26))
    assert resumed.document["rounds"][paused.round]["attempt"] == paused.attempt


def test_a_revoked_participant_is_cut_off_and_named(terminal: Terminal, stage: Stage) -> None:
    said = terminal.type("participants", "revoke", "b", "--reason", "left the consortium", "--json")
    assert said.code == 0
    assert said.document["streams_cut"] == 1
    listed = json.loads(terminal.type("participants", "list", "--json").out)
    assert {one["name"]: one["state"] for one in listed}["b"] == "revoked"
    unknown = terminal.type("participants", "revoke", "nobody")
    assert unknown.code == 1
