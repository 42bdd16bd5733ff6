"""How long the paper's figures take."""

from __future__ import annotations

from pathlib import Path

from benchmarks.paper.figures import FIGURES
from benchmarks.sections import Section, document, paragraphs, power, table


def runs(results: Path) -> Section | None:
    """CPU seconds of each figure, full and quick."""
    found = {name: document(results / f"paper-{name}.json") for name in FIGURES}
    quick = document(results / "paper-quick.json")
    if quick is None or any(one is None for one in found.values()):
        return None
    rows = [[name, power(one.cpu_seconds), power(getattr(quick.cpu_seconds, name))] for name, one in found.items()]
    total = sum(one.cpu_seconds for one in found.values())
    return Section(
        "The paper: all figures",
        ("python -m benchmarks.paper --quick", "python -m benchmarks.paper"),
        paragraphs(
            "Every figure and table of W. Chu, Distributed Robust Principal Component Analysis (arXiv 2207.11669), "
            "with "
            "the published numbers beside ours: data, PNG and SVG. CPU seconds on one thread:",
            table(["figure", "full", "--quick"], [*rows, ["all", power(total), power(quick.total_cpu_seconds)]]),
            f"The quick run took {quick.wall_seconds:.0f} s by the clock on this machine while others used it. The "
            "full one was taken figure by figure, beside other work.",
        ),
    )
