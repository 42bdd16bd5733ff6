"""Live progress of a run on stderr: a display that updates in place on a terminal, one line per round elsewhere.

`RunHistory` collects the views it is drawn from.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from dcfpca.operator.run_stream import OVER
from dcfpca.text.console import figure, plain, size, stderr
from dcfpca.text.run_views import coloured, complaint_line, reason_without_refusals, refusal_line, waiting_line
from dcfpca.v1 import admin_pb2 as pb


@dataclass(slots=True)
class RunHistory:
    """The latest view and all rounds so far. Views may repeat rounds or carry only new ones; the result is the same."""

    view: pb.RunView = field(default_factory=pb.RunView)
    rounds: dict[int, pb.RoundView] = field(default_factory=dict)

    def take(self, view: pb.RunView) -> list[pb.RoundView]:
        """Add a view; returns the rounds that are new, oldest first."""
        fresh = [one for one in view.rounds if one.round not in self.rounds]
        self.rounds |= {one.round: one for one in view.rounds}
        self.view = view
        return fresh

    @property
    def last_round(self) -> int:
        """The newest finished round; −1 before the first."""
        return max(self.rounds, default=-1)

    def complete_view(self) -> pb.RunView:
        """The latest view with all rounds received so far."""
        complete = pb.RunView()
        complete.CopyFrom(self.view)
        del complete.rounds[:]
        complete.rounds.extend(self.rounds[number] for number in sorted(self.rounds))
        return complete

    def bytes_received(self) -> int:
        """Payload bytes that participants sent so far."""
        return sum(one.bytes_received for one in self.rounds.values())

    def bytes_sent(self) -> int:
        """Payload bytes that participants were sent so far."""
        return sum(one.bytes_sent for one in self.rounds.values())


class RunProgress(AbstractContextManager["RunProgress"]):
    """Shows the views of a run as they arrive."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or stderr()
        self._history = RunHistory()
        self._live = Live(console=self._console, refresh_per_second=8, transient=False)
        self._noted: set[str] = set()

    def __enter__(self) -> RunProgress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @property
    def history(self) -> RunHistory:
        """All views received so far."""
        return self._history

    def update(self, view: pb.RunView) -> None:
        """Show this view."""
        before = self._history.view
        fresh = self._history.take(view)
        for refusal in view.refusals:
            self._note_once(f"refused by {refusal_line(refusal)}")
        for complaint in view.complaints:
            self._note_once(f"complaint of {complaint_line(complaint)}")
        if self._console.is_terminal:
            self._note_dropouts(fresh)
            self._live.update(picture(self._history))
        else:
            self._print_lines(before, fresh)

    def note(self, text: str) -> None:
        """Print a line above the live display."""
        self._console.print(plain(text), markup=False)

    def _note_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self.note(text)

    def _note_dropouts(self, fresh: list[pb.RoundView]) -> None:
        for one in fresh:
            if one.dropouts:
                self.note(f"round {one.round} went on without {', '.join(one.dropouts)}")

    def _print_lines(self, before: pb.RunView, fresh: list[pb.RoundView]) -> None:
        for one in fresh:
            self.note(round_line(one))
        view = self._history.view
        for waiting in view.waiting:
            self._note_once(f"round {view.round} waits for {waiting_line(waiting)}")
        if view.status != before.status:
            reason = reason_without_refusals(view)
            self.note(f"{view.status}{': ' + reason if reason else ''}")


def round_line(one: pb.RoundView) -> str:
    """A finished round in one line."""
    words = [
        f"round {one.round}",
        f"change {figure(one.change)}",
        f"rank {one.rank}",
        f"{size(one.bytes_received)} received",
        f"{size(one.bytes_sent)} sent",
        f"{one.seconds:.2f} s",
        f"{len(one.survivors)} sites",
    ]
    if one.dropouts:
        words.append(f"without {', '.join(one.dropouts)}")
    return "  ".join(words)


def picture(history: RunHistory) -> RenderableType:
    """The live display: a bar, the figures of the last round, who is awaited."""
    view, rounds = history.view, [history.rounds[number] for number in sorted(history.rounds)]
    lines: list[RenderableType] = [_bar(view, view.round_limit or 1)]
    if rounds:
        lines.append(Text(f"  {round_line(rounds[-1])}"))
    if view.awaited and view.status not in OVER:
        lines.append(Text(plain(f"  awaiting {', '.join(_awaited(view))} ({view.phase})"), style="dim"))
    lines += [Text(plain(f"  waiting for {waiting_line(one)}"), style="yellow") for one in view.waiting]
    if view.reason:
        lines.append(Text(plain(f"  {reason_without_refusals(view)}")))
    lines.append(
        Text(f"  total {size(history.bytes_received())} received, {size(history.bytes_sent())} sent", style="dim")
    )
    return Group(*lines)


def _awaited(view: pb.RunView) -> list[str]:
    return [f"{name} {view.percent[name]} %" if name in view.percent else name for name in view.awaited]


def _bar(view: pb.RunView, limit: int) -> RenderableType:
    """Rounds against the limit. The bar of a run that converges early jumps to full."""
    over = view.status in OVER
    grid = Table.grid(padding=(0, 1))
    sign = Text("✓" if view.status == "finished" else "✗") if over else Spinner("dots")
    done = limit if view.status == "finished" else min(view.round, limit)
    grid.add_row(
        sign,
        Text(view.run_id, style="bold"),
        coloured(view.status),
        ProgressBar(total=max(limit, 1), completed=done, width=24),
        Text(f"round {view.round} of at most {limit}"),
    )
    return grid
