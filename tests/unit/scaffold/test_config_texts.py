"""What `dcfpca init` writes is accepted by the programs that read it, and never replaces a file unasked."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from aggregator.config import load_config as load_aggregator
from dcfpca.cli.main import main
from dcfpca.scaffold.config_texts import DataKeys, Tables, aggregator_text, participant_text
from participant.config import load_config as load_participant


def typed(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["init", *words])
    return int(ended.value.code or 0)


def test_a_participants_file_is_a_valid_configuration(tmp_path: Path) -> None:
    out = tmp_path / "participant.toml"
    words = ["--name", "a", "--aggregator", "agg:7443", "--data", 'da"ta.csv', "--id-column", "patient"]
    assert typed("participant", *words, "--exclude", "diagnosis", "--exclude", "lab_*", "--out", str(out)) == 0
    config = load_participant(out)
    assert config.data.path == tmp_path / 'da"ta.csv'
    assert config.data.exclude == ("diagnosis", "lab_*")
    assert config.policy.private


def test_the_array_of_a_file_that_holds_several_can_be_named(tmp_path: Path) -> None:
    words = ["--name", "a", "--aggregator", "agg:7443", "--data", "d.npz", "--out", str(tmp_path / "p.toml")]
    assert typed("participant", *words, "--dataset", "X") == 0
    assert load_participant(tmp_path / "p.toml").data.dataset == "X"
    assert typed("participant", *words, "--force") == 0
    assert load_participant(tmp_path / "p.toml").data.dataset == ""
    assert "# dataset = " in (tmp_path / "p.toml").read_text()


def test_an_aggregators_and_an_operators_file_are_valid(tmp_path: Path) -> None:
    assert typed("aggregator", "--out", str(tmp_path / "aggregator.toml")) == 0
    assert load_aggregator(tmp_path / "aggregator.toml").server.listen == "0.0.0.0:7443"
    words = ["--name", "alice", "--aggregator", "agg:7443", "--out", str(tmp_path / "operator.toml")]
    assert typed("operator", *words) == 0
    assert tomllib.loads((tmp_path / "operator.toml").read_text())["cert"] == "alice.crt"


def test_a_file_is_replaced_only_when_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "aggregator.toml"
    out.write_text("mine")
    assert typed("aggregator", "--out", str(out)) == 2
    assert "exists already" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert typed("aggregator", "--out", str(out), "--force") == 0
    assert out.read_text() != "mine"


def test_without_a_terminal_a_missing_answer_names_its_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert typed("operator", "--name", "alice", "--out", str(tmp_path / "o.toml")) == 2
    assert "give --aggregator" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        (["one.csv"], "two sites or more"),
        (["a=one.csv", "b=none.csv"], "of b does not exist"),
        (["one.csv", "one.csv"], "two sites are called one"),
    ],
)
def test_a_consortium_that_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sites: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.csv").write_text("a\n1\n")
    assert typed("local", "there", *sites) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not Path("there").exists()


def test_further_keys_replace_and_add_and_keep_the_comment() -> None:
    more: Tables = {"policy": {"private": False, "max_rank": 3}, "engine": {"kind": "idle"}}
    text = participant_text("agg:7443", "a", DataKeys('quo"te\\ü'), more)
    found = tomllib.loads(text)
    assert found["data"]["path"] == 'quo"te\\ü'
    assert found["policy"] == {"private": False, "min_cohort": 3, "max_rank": 3}
    assert found["engine"] == {"kind": "idle"}
    assert "private = false  # the reconstruction" in text
    server = tomllib.loads(aggregator_text("agg:1", "a", {"limits": {"share": 0.5}, "server": {"crl": "x"}}))
    assert (server["limits"], server["server"]["crl"]) == ({"share": 0.5}, "x")
