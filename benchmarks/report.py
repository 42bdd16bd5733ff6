"""Writes docs/results.md, its appendix docs/measurements.md and the paper's figures from the data under
benchmarks/results. `make results` runs it.

    python -m benchmarks.report

Each section is one data file and one small renderer in benchmarks/sections; what was not measured is not there.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import taken
from benchmarks.paper import composed_round_time as composed
from benchmarks.paper import figures as paper
from benchmarks.sections import (
    Renderer,
    Section,
    cell_peers,
    document,
    exchange,
    growth,
    identifiable,
    peers,
    poisoning,
    privacy,
    real_tables,
    secure_exchange,
    solver,
    start_up,
    summary,
    table,
    threads,
    wide,
    wrapped,
)
from benchmarks.sections.paper import convergence, costs, recovery, runs, theory

ROOT = Path(__file__).parents[1]
RESULTS, DOCS = ROOT / "benchmarks" / "results", ROOT / "docs"
FIGURES = DOCS / "figures"
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
    identifiable.identifiable,
    solver.split,
    peers.peers,
    solver.step,
    solver.roofline,
    exchange.rounds,
    secure_exchange.secure_rounds,
    secure_exchange.delayed_rounds,
    secure_exchange.slow_line,
    real_tables.real_tables,
    cell_peers.cell_peers,
    real_tables.site_gain,
    poisoning.poisoning,
    privacy.private_subspace,
    threads.thread_speedup,
    start_up.start_up,
    start_up.small_job,
    growth.growth,
    growth.many,
    growth.out_of_core,
    wide.wide,
    wide.many_secure,
)
HEAD = """<!-- Written by benchmarks/report.py; change benchmarks/sections and run `make results`. -->

# What was measured

This page says what to expect; [the appendix](measurements.md) has every table, with the command for each. Everything
ran on one machine (2 cores of an AMD EPYC, AVX2) beside other work: trust ratios before seconds. Settings are the
defaults unless a line says otherwise. Data sets are public and not part of this project; `DIR` is where you keep them.
Constants of the calibration were chosen while looking at these tables, so expect somewhat less on yours.
"""
APPENDIX = """<!-- Written by benchmarks/report.py; change benchmarks/sections and run `make results`. -->

# Measurements

The appendix of [what was measured](results.md): every table, made from the records under
[benchmarks/results](../benchmarks/results) by `make results`. Seconds of a solver are CPU seconds of its process on one
thread unless said otherwise.
"""


def sections(results: Path = RESULTS) -> list[Section]:
    """All that was measured, in the order of the page."""
    return [section for render in SECTIONS if (section := render(results)) is not None]


def page(results: Path = RESULTS) -> str:
    """The text of docs/results.md."""
    found = sections(results)
    short = "\n".join(
        wrapped(f"- **{one.title}**, {len(one.short)} in all, such as: {one.short[0]}", "  ")
        for one in found
        if one.short
    )
    falls = (
        f"## What falls short\n\nEach figure is compared with its goal; the appendix lists all of them.\n\n{short}\n"
    )
    return "\n".join([HEAD, summary.summary(results) + "\n", falls, _records(results)])


def _records(results: Path) -> str:
    rows = [[f"`{name}`", f"`{one['commit']}`"] for name, one in taken.known(results).items()]
    told = (
        "The commit of the code that each record under benchmarks/results was taken on. `python -m benchmarks.taken`\n"
        "says how much of the code that it measures has changed since."
    )
    return f"## Records\n\n{told}\n\n{table(['record', 'taken on'], rows)}\n"


def appendix(results: Path = RESULTS) -> str:
    """The text of docs/measurements.md."""
    parts = [APPENDIX]
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
    taken.note(RESULTS)
    (DOCS / "results.md").write_text(page(), encoding="utf-8")
    (DOCS / "measurements.md").write_text(appendix(), encoding="utf-8")
    print("docs/results.md and docs/measurements.md are written")


if __name__ == "__main__":
    main()
