"""The files of a monthly run: each scheduler would call the same command, and the shell works out its label."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from dcfpca.cli.main import main
from dcfpca.config_file import read_toml
from dcfpca.scaffold.monthly_job import monthly_files


def called(command: str, directory: Path) -> list[str]:
    """The arguments with which a shell calls `dcfpca`."""
    fake = directory / "dcfpca"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o700)
    path = f"{directory}:{os.environ['PATH']}"
    made = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True, env={"PATH": path})
    return made.stdout.splitlines()


def test_systemd_and_kubernetes_start_the_same_run(tmp_path: Path) -> None:
    files = monthly_files("/etc/dcfpca/operator.toml", "/etc/dcfpca/spec.toml", "1.2")
    service = configparser.RawConfigParser()
    service.read_string(files["dcfpca-monthly.service"])
    written = re.fullmatch(r"/bin/sh -c '(.*)'", service["Service"]["ExecStart"])
    assert written is not None
    container = re.search(r"image: (\S+)\n *command: (\[.*\])\n", files["dcfpca-monthly.cronjob.yaml"])
    assert container is not None
    from_systemd = called(written[1].replace("%%", "%").replace("$$", "$"), tmp_path)
    assert from_systemd == called(json.loads(container[2])[2], tmp_path)
    assert from_systemd[:5] == ["run", "start", "/etc/dcfpca/spec.toml", "--warm-start", "latest"]
    assert re.fullmatch(r"\d{4}-\d{2}", from_systemd[6])
    assert container[1] == "dcfpca:1.2"


def test_init_writes_a_spec_from_a_sites_features_and_the_job_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("told.json").write_text('{"participant": "a", "features": [{"name": "age"}, {"name": "cd4 \\"new\\""}]}')
    Path("names.txt").write_text("age\n\nhgb\n")
    for file, names in (("told.json", ["age", 'cd4 "new"']), ("names.txt", ["age", "hgb"])):
        assert_done(["init", "spec", file, "--label", "spring", "--force"])
        assert read_toml(Path("spec.toml"), "", "") == {"label": "spring", "features": names}
    for wrong in ('{"rows": 3}', "age,cd4\n40,300\n"):
        Path("wrong").write_text(wrong)
        with pytest.raises(SystemExit):
            main(["init", "spec", "wrong", "--force"])
        assert "wrong has no names of features" in capsys.readouterr().err
    Path("operator.toml").touch()
    assert_done(["init", "monthly", "--out", "jobs"])
    assert str(tmp_path / "spec.toml") in Path("jobs/dcfpca-monthly.service").read_text()


def assert_done(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code
