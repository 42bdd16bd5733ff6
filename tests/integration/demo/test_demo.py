"""The demo as its users run it: a command, its exit code, its words; and nothing left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dcfpca.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.usefixtures("compiled_loops")]

KEYS = {
    "participants",
    "method",
    "rounds",
    "seconds",
    "error",
    "relative_error_L",
    "bytes_sent",
    "bytes_received",
    "refusals",
    "files",
}


def demo(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dcfpca.cli.main", "demo", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)


def left_running(directory: Path) -> list[str]:
    """Command lines of processes that were started on a file of this directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(str(directory) in word for word in words):
            found.append(" ".join(words))
    return found


def test_processes_are_killed_and_yet_every_site_has_the_truth_and_the_private_one_keeps_it(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    done = demo("--json", "--dir", str(directory), "--rows", "120", "--columns", "240", "--rank", "4")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == KEYS
    assert (found["participants"], found["method"]) == (4, "subspace")
    assert found["relative_error_L"] < 1e-6
    assert found["error"] < 1e-12
    assert [one["participant"] for one in found["refusals"]] == ["hospital-d"]
    assert "private" in found["refusals"][0]["reason"]
    assert found["bytes_sent"] > 0
    assert found["bytes_received"] > 0
    files = {str(Path(file).relative_to(directory)) for file in found["files"]}
    assert all((directory / file).is_file() for file in files)
    exported = {file.split("/")[1] for file in files if file.startswith("export/hospital")}
    assert exported == {"hospital-a", "hospital-b", "hospital-c"}
    assert sum(file.endswith("/manifest.json") for file in files) == 5
    assert "hospital-b was killed" in done.stderr
    assert "waits for hospital-b" in done.stderr
    assert "the aggregator was killed" in done.stderr
    assert "hospital-b came back where it was" in done.stderr
    assert "without hospital-b" not in done.stderr
    assert left_running(directory) == []


def test_the_paper_s_method_runs_too_and_the_story_names_what_each_site_wrote(tmp_path: Path) -> None:
    done = demo(
        *("--method", "gradient", "--no-kill", "--participants", "3", "--dir", str(tmp_path / "demo")),
        *("--rows", "100", "--columns", "150", "--rank", "3"),
    )
    assert done.returncode == 0, done.stderr
    assert "hospital-c did not export" in done.stdout
    assert "L.npy" in done.stdout
    assert "masked update" in done.stdout
    assert f"are in {tmp_path / 'demo'}" in done.stdout


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell that runs the tests in the background made them ignore an interrupt, and so their children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_in_mid_run_nothing_keeps_running(tmp_path: Path, number: signal.Signals) -> None:
    directory = tmp_path / "demo"
    command = [sys.executable, "-m", "dcfpca.cli.main", "demo", "--dir", str(directory), "--participants", "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("all connected"):
            break
    os.kill(process.pid, number)
    process.communicate(timeout=60)
    assert process.returncode != 0
    deadline = time.monotonic() + 10
    while left_running(directory) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left_running(directory) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--participants", "1"), "at least 2 participants"),
        (("--columns", "3"), "cannot be divided among"),
        (("--rank", "1000"), "Rank 1000 does not fit"),
        (("--method", "magic"), "magic"),
    ],
)
def test_a_demo_that_cannot_be_is_misuse(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["demo", *words])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_a_directory_that_is_in_use_is_left_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--dir", str(tmp_path)])
    assert stop.value.code == 2
    assert "not an empty directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
