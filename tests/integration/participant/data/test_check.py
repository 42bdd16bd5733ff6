"""`dcfpca-participant check` says of every malformed file what is wrong with it and where: a sentence and a hint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from participant.main import main
from participant.state.store import Store
from tests.support.inputs.malformed import malformed
from tests.support.services.federation import Federation
from tests.support.services.processes import run_to_end

SAMPLES = {"orientation": "samples-in-rows", "missing": "allow"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """Sites on their own; there is no aggregator, and none is reached."""
    made = Federation(tmp_path_factory.mktemp("check"))
    made.address = "127.0.0.1:9"
    return made


def config(federation: Federation, path: Path, **keys: Any) -> Path:
    federation.add_site("solo", None, tables={"data": {"path": str(path), **SAMPLES, **keys}})
    return federation.root / "sites" / "solo" / "participant.toml"


@pytest.mark.parametrize("memory_limit", ["0", "1 MiB"])
def test_malformed_files_are_refused_by_the_command(
    alone: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str], memory_limit: str
) -> None:
    for name, said in malformed(tmp_path).items():
        file = config(alone, tmp_path / name)
        file.write_text(file.read_text().replace("[engine]", f'[engine]\nmemory_limit = "{memory_limit}"'))
        with pytest.raises(SystemExit) as ended:
            main(["check", "--config", str(file)])
        spoken = capsys.readouterr()
        sentence = " ".join(spoken.err.split())
        assert ended.value.code == 2
        assert spoken.out == ""
        assert "error: " in sentence
        assert "hint: " in sentence
        assert said in sentence, sentence
        assert name in sentence
        assert "Traceback" not in sentence
        assert "secret" not in sentence


def test_a_table_of_samples_is_described_as_the_method_sees_it(alone: Federation, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("id,height,weight\n1,1.5,60\n2,1.7,\n3,1.6,70\n")
    file = config(alone, tmp_path / "d.csv", features=["weight", "height"])
    told = json.loads(run_to_end("participant.main", "check", "--config", str(file), "--json").stdout)
    assert (told["data"]["rows"], told["data"]["columns"], told["data"]["missing"]) == (2, 3, 1)


def remarks(file: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["check", "--config", str(file), "--json", *options])
    assert ended.value.code == 0
    return "; ".join(json.loads(capsys.readouterr().out)["remarks"])


def test_check_says_that_rows_must_not_be_persons_and_warns_where_they_look_like_it(
    alone: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = np.random.default_rng(0).standard_normal((60, 3))
    lines = (f"P{number:04d},{','.join(map(str, row))}" for number, row in enumerate(table))
    (tmp_path / "d.csv").write_text("patient,a,b,c\n" + "\n".join(lines) + "\n")
    wrong = config(alone, tmp_path / "d.csv", orientation="features-in-rows", feature_column="patient")
    told = remarks(wrong, capsys)
    assert "features must not be persons" in told
    assert "WARNING: there are 60 features and only 3 samples" in told
    assert 'orientation = "samples-in-rows"' in told
    right = remarks(config(alone, tmp_path / "d.csv", features=["a", "b", "c"]), capsys)
    assert "features must not be persons" in right
    assert "WARNING" not in right


def test_check_names_the_features_that_too_few_samples_have(
    alone: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{k},{k}.5,{'7' if k < 4 else ''}" for k in range(30)]
    (tmp_path / "d.csv").write_text("id,pulse,troponin\n" + "\n".join(lines) + "\n")
    told = remarks(config(alone, tmp_path / "d.csv", features=["pulse", "troponin"]), capsys)
    assert "fewer than 5 entries here: troponin (4)" in told
    assert "pulse (" not in told


def test_check_says_up_to_which_rank_the_columns_are_enough(
    alone: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "M.npy", np.ones((50, 47)))
    file = config(alone, tmp_path / "M.npy", orientation="features-in-rows")
    assert "reveals the site's data" in remarks(file, capsys)
    file.write_text(file.read_text().replace("min_columns = 2", "min_columns = 0"))
    assert "runs of rank 15 or less" in remarks(file, capsys)
    np.save(tmp_path / "M.npy", np.ones((4, 47)))
    assert "runs of rank 4 or less" in remarks(file, capsys)


def test_check_says_what_a_run_with_a_given_spec_costs_and_what_is_left(
    alone: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"P{k // 2},{k}.5,{k * k % 7},{k}" for k in range(40)]
    (tmp_path / "d.csv").write_text("patient,a,b,c\n" + "\n".join(lines) + "\n")
    file = config(alone, tmp_path / "d.csv", person_column="patient")
    file.write_text(file.read_text().replace("min_columns = 2", "min_columns = 2\nmax_epsilon = 2.0"))
    site = file.parent
    Store(site / "state", site / "results").close()
    assert "has spent ε = 0 of 2 on this data at δ = 1e-05; ε = 2 is left for one run" in remarks(file, capsys)

    def costs(text: str) -> str:
        (tmp_path / "spec.toml").write_text(text)
        return remarks(file, capsys, "--spec", str(tmp_path / "spec.toml"))

    told = costs("rank = 2\n[privacy]\nepsilon = 1.0\n")
    assert "costs ε = 1 at δ = 1e-06 (ρ = 0.0244) for one person, after which ε = 1 is spent on this data" in told
    assert "would join it" in told
    assert "would join it" in costs('rank = 1\nfeatures = ["a", "b"]\n[privacy]\nepsilon = 1.0\n')
    assert "would refuse it: the run asks for ε = 3" in costs("rank = 2\n[privacy]\nepsilon = 3.0\n")
    assert "has no differential privacy" in costs("rank = 2\n")


def test_a_matrix_larger_than_the_limit_is_checked_like_any_other(
    alone: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    M = np.random.default_rng(0).standard_normal((50, 9000))
    M[3, 8000] = np.inf
    np.save(tmp_path / "M.npy", M)
    file = config(alone, tmp_path / "M.npy", orientation="features-in-rows")
    file.write_text(file.read_text().replace("[engine]", '[engine]\nmemory_limit = "1 MiB"'))
    with pytest.raises(SystemExit):
        main(["check", "--config", str(file)])
    assert "infinite entry in sample 8000, feature 3" in " ".join(capsys.readouterr().err.split())
