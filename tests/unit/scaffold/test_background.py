"""Background processes: started once, found again by their pid file, and a stale file is not believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dcfpca.scaffold.background import Background, ProcessEnded

WAIT = ["http.server", "--bind", "127.0.0.1", "0"]


def test_a_process_is_started_once_and_stopped_once(tmp_path: Path) -> None:
    process = Background("it", tmp_path)
    assert not process.stop()
    assert process.start(WAIT)
    try:
        again = Background("it", tmp_path)
        assert again.is_running()
        assert not again.start(WAIT)
    finally:
        assert Background("it", tmp_path).stop()
    assert not process.is_running()
    os.waitpid(-1, 0)


def test_the_number_in_a_stale_pid_file_is_never_signalled(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(f"{os.getpid()}\n")
    process = Background("it", tmp_path)
    assert not process.is_running()
    assert not process.stop()


def test_a_background_process_keeps_no_pipe_of_its_starter_open(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)  # as a shell leaves it
    process = Background("it", tmp_path)
    assert process.start(WAIT)
    try:
        os.close(writing)
        assert os.read(reading, 1) == b""  # the end of the file: nobody else holds it
    finally:
        os.close(reading)
        process.stop()
        os.waitpid(-1, 0)


@pytest.mark.parametrize(
    ("log", "said", "hint"),
    [
        (
            "info went well\nerror: the store is in use\nhint: stop the other\n",
            "the store is in use",
            "stop the other; ",
        ),
        ("info one\ninfo two\n", "info one / info two", ""),
        ("", "its log is empty", ""),
    ],
)
def test_a_process_that_ended_is_quoted_with_its_last_error_alone(
    tmp_path: Path, log: str, said: str, hint: str
) -> None:
    (tmp_path / "log").write_text(log)
    with pytest.raises(ProcessEnded) as told:
        Background("it", tmp_path).require_running()
    assert str(told.value) == f"it has ended: {said}"
    assert told.value.hint == f"{hint}its log: {tmp_path / 'log'}"
