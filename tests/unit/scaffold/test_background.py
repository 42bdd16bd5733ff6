"""Background processes: started once, found again by their pid file, and a stale file is not believed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from dcfpca.scaffold.background import Background, ProcessEnded, signals_exit, until

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


def test_a_killed_process_is_gone_and_can_be_started_again(tmp_path: Path) -> None:
    process = Background("it", tmp_path)
    assert process.start(WAIT)
    process.kill()
    assert not process.is_running()
    os.waitpid(-1, 0)
    assert process.start(WAIT)
    process.require_running()
    process.stop()
    os.waitpid(-1, 0)


def test_waiting_has_an_end_that_names_the_logs_and_ends_at_once_with_the_process(tmp_path: Path) -> None:
    process = Background("it", tmp_path)
    process.start(WAIT)
    with pytest.raises(ProcessEnded, match=r"the tide did not happen within 0\.05 s") as told:
        until(lambda: False, [process], "the tide", 0.05)
    assert str(process.log) in told.value.hint
    process.kill()
    os.waitpid(-1, 0)
    with pytest.raises(ProcessEnded, match="it has ended"):
        until(lambda: False, [process], "the tide", 600)


def test_a_command_that_is_told_to_end_stops_what_it_started(tmp_path: Path) -> None:
    process = Background("it", tmp_path)

    def be_told() -> None:
        with signals_exit():
            process.start(WAIT)
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                process.stop()

    with pytest.raises(SystemExit) as left:
        be_told()
    assert left.value.code == 128 + signal.SIGTERM
    assert not process.is_running()
    os.waitpid(-1, 0)
