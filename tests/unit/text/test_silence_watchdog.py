import io
import threading

from rich.console import Console

from dcfpca.text.run_progress import RunProgress
from dcfpca.text.run_watch import SilenceWatchdog
from dcfpca.v1 import admin_pb2 as pb


def test_silence_is_reported_and_the_thread_ends_with_the_context() -> None:
    reported = threading.Event()
    lengths: list[float] = []

    def report(seconds: float) -> None:
        lengths.append(seconds)
        reported.set()

    with SilenceWatchdog(report, every=0.01):
        assert reported.wait(10)
    assert lengths[0] >= 0.01
    assert not any(thread.name == "silence-watchdog" for thread in threading.enumerate())


def test_a_report_of_silence_names_who_is_awaited_where_no_live_display_does() -> None:
    view = pb.RunView(run_id="r", status="running", round=4, phase="uploading", awaited=["a", "b"])
    for terminal in (False, True):
        out = io.StringIO()
        with RunProgress(Console(file=out, width=200, force_terminal=terminal)) as progress:
            progress.report_silence(20)
            progress.update(view)
            progress.report_silence(20)
        said = "round 4 has been awaiting a, b for 20.0 s (uploading)" in out.getvalue()
        assert said != terminal
