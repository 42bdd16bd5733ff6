"""What a second thread gains a site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.sections import Section, document, paragraphs, table

ASKED = 1.7
OVERSUBSCRIBED = 1.1  # several sites with two threads each, over the same with one each


def thread_speedup(results: Path) -> Section | None:
    """The local step on one thread and on two, and several sites at once."""
    data = document(results / "thread-speedup.json")
    if data is None:
        return None
    machine, beside = data.machine, data.beside
    return Section(
        "Threads",
        ("python -m benchmarks.thread_speedup --json benchmarks/results/thread-speedup.json",),
        paragraphs(
            f"The daemon's engine answers the same {len(vars(data.steps[0].seconds)['1'])} rounds of `subspace` with "
            f"one thread and with two, in turns; wall seconds, the best of {data.repeats}, both cores free. The file "
            "of the last row is in the page cache. On this machine a second thread gains a factor of "
            f"{machine.read:.2f} at reading memory, {machine.triad:.2f} at a triad and {machine.product:.2f} at matrix "
            "products.",
            table(
                ["site", "rank", "parts", "one thread, late round", "two", "gain, late round", "gain, all rounds"],
                [_row(one) for one in data.steps],
            ),
            f"{beside.sites} sites of {beside.rows} × {beside.columns} in processes of their own, begun together on "
            f"the same two cores: {vars(beside.seconds)['1']:.2f} s with one thread each, "
            f"{vars(beside.seconds)['2']:.2f} s with two ({beside.ratio:.2f} ×).",
        ),
        (
            *(
                f"Two threads are {one.ratio:.2f} times as fast as one, {_name(one)}, rank {one.rank} (goal: "
                f"{ASKED:g}; the machine's own gain at reading memory is {machine.read:.2f})."
                for one in data.steps
                if one.ratio < ASKED
            ),
            *(
                [f"Several sites with two threads each take {beside.ratio:.2f} times as long as with one."]
                if beside.ratio > OVERSUBSCRIBED
                else []
            ),
        ),
    )


def _name(one: Any) -> str:
    return one.case if one.case == "in memory" else f"{one.case} ({one.gib:g} GiB)"


def _row(one: Any) -> list[str]:
    late = vars(one.late_round)
    return [
        f"{one.rows} × {one.columns}, {_name(one)}", str(one.rank), str(one.parts), f"{late['1']:.3f} s",
        f"{late['2']:.3f} s", f"{one.late_ratio:.2f}", f"{one.ratio:.2f}",
    ]  # fmt: skip
