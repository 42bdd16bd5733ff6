"""Writes docs/results.md, and the paper's figures, from the data under benchmarks/results. `make results` runs it.

    python -m benchmarks.report

Each section is one data file and one small renderer in benchmarks/sections; what was not measured is not there.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.paper import composed_round_time as composed
from benchmarks.paper import figures as paper
from benchmarks.sections import (
    Renderer,
    Section,
    document,
    exchange,
    growth,
    peers,
    privacy,
    real_data,
    real_tables,
    secure_exchange,
    solver,
    start_up,
    threads,
    wrapped,
)
from benchmarks.sections.paper import convergence, costs, recovery, runs, theory

ROOT = Path(__file__).parents[1]
RESULTS, PAGE, FIGURES = ROOT / "benchmarks" / "results", ROOT / "docs" / "results.md", ROOT / "docs" / "figures"
SECTIONS: tuple[Renderer, ...] = (
    runs.runs,
    convergence.main,
    recovery.phase,
    recovery.spectra,
    convergence.local_iterations,
    theory.theorems,
    costs.costs,
    solver.easy,
    solver.cells,
    solver.closing,
    solver.kinds,
    solver.known_failures,
    solver.split,
    solver.speed,
    peers.peers,
    solver.step,
    exchange.rounds,
    secure_exchange.secure_rounds,
    secure_exchange.delayed_rounds,
    secure_exchange.slow_line,
    exchange.flower,
    real_data.real_data,
    real_tables.real_tables,
    real_tables.longer,
    real_tables.site_gain,
    privacy.private_subspace,
    threads.thread_speedup,
    start_up.start_up,
    growth.growth,
    growth.many,
    growth.out_of_core,
)
HEAD = """<!-- Written by benchmarks/report.py; change benchmarks/sections and run `make results`. -->

# What was measured

On one machine (2 cores of an AMD EPYC, AVX2) that was shared with other work, so seconds of a solver are CPU seconds of
its process on one thread unless said otherwise. Every section names the command that measures it; the data is under
[benchmarks/results](../benchmarks/results), and this page is made from it by `make results`. Settings are the defaults
throughout, unless a section says which. What falls short is gathered [at the end](#what-falls-short).
"""


def sections(results: Path = RESULTS) -> list[Section]:
    """All that was measured, in the order of the page."""
    return [section for render in SECTIONS if (section := render(results)) is not None]


def page(results: Path = RESULTS) -> str:
    """The text of docs/results.md."""
    parts = [HEAD]
    found = sections(results)
    for section in found:
        commands = "\n".join(f"    {command}" for command in section.commands)
        parts.append(f"## {section.title}\n\n{commands}\n\n{section.body}\n")
    short = "\n".join(wrapped(f"- {one.title}: {sentence}", "  ") for one in found for sentence in one.short)
    return "\n".join([*parts, f"## What falls short\n\n{short}\n"])


def main() -> None:
    """Write the page, and draw the paper's figures."""
    for name in paper.FIGURES:
        if (data := RESULTS / f"paper-{name}.json").exists():
            paper.redraw(data, FIGURES)
    rounds, sites = (document(RESULTS / f"paper-costs-{part}.json") for part in ("exchange", "sites"))
    if rounds and sites:
        composed.draw(
            composed.curves(sites.steps, composed.exchange_of(rounds.runs, "secure")), FIGURES / "paper-costs"
        )
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} is written")


if __name__ == "__main__":
    main()
