import io
import threading

from rich.console import Console

from dcfpca.text.run_progress import Progress
from dcfpca.text.silence_reminder import Reminder
from dcfpca.v1 import admin_pb2 as pb


def test_silence_is_broken_and_ends_with_the_context() -> None:
    reminded = threading.Event()
    lengths: list[float] = []

    def remind(seconds: float) -> None:
        lengths.append(seconds)
        reminded.set()

    with Reminder(remind, every=0.01):
        assert reminded.wait(10)
    assert lengths[0] >= 0.01
    assert not any(thread.name == "reminder" for thread in threading.enumerate())


def test_a_reminder_names_who_is_awaited_where_no_picture_does() -> None:
    view = pb.RunView(run_id="r", status="running", round=4, phase="uploading", awaited=["a", "b"])
    for terminal in (False, True):
        out = io.StringIO()
        with Progress(Console(file=out, width=200, force_terminal=terminal)) as progress:
            progress.remind(20)
            progress.update(view)
            progress.remind(20)
        said = "round 4 has been awaiting a, b for 20.0 s (uploading)" in out.getvalue()
        assert said != terminal
