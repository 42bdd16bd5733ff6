"""How costs grow, and a matrix larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.sections import Section, document, paragraphs, picture, power, table

FLAT, ROUND_SECONDS = 1.2, 3.0
FIGURES = Path(__file__).parents[2] / "docs" / "figures"
PICTURES = {
    "growth-site": "CPU seconds of a site's round",
    "growth-bytes": "bytes by participants",
    "growth-aggregator": "the aggregator's memory and time by participants",
}


def growth(results: Path) -> Section | None:
    """A site's round by n_i, m and rank; bytes by E."""
    data = document(results / "growth.json")
    if data is None:
        return None
    site, base = data.site, data.base
    bytes_by_cohort = [
        [str(one.participants), str(one.neighbours), f"{one.set_up / 1000:.1f} kB"]
        for one in data.bytes_per_participant
    ]
    return Section(
        "Growth",
        ("python -m benchmarks.cost_growth --json benchmarks/results/growth.json",),
        paragraphs(
            f"One site's round of `subspace` around m = {base.rows}, n_i = {base.columns}, rank {base.rank}, CPU "
            "seconds: "
            f"proportional to n_i^{site.columns.exponent:.2f}, m^{site.rows.exponent:.2f} and "
            f"rank^{site.rank.exponent:.2f}. Bytes that a participant sends in a secure run at m = 1000, rank 20, from "
            f"encoded messages: in each round its update of {data.bytes_per_participant[0].update / 1000:.0f} kB, "
            "whatever the number of participants, and once, in the set-up of the run:",
            table(["participants", "masks with", "set-up"], bytes_by_cohort),
            *_federation(data.federation),
            *(picture(name, about) for name, about in PICTURES.items() if (FIGURES / f"{name}.svg").exists()),
        ),
    )


def _federation(cohorts: list[Any]) -> list[str]:
    if not cohorts:
        return []
    rows = [
        [str(one.participants), power(one.seconds_per_round), *(f"{kib / 1024:.0f} MiB" for kib in _memory(one))]
        for one in cohorts
    ]
    return [
        "The real aggregator with light participants, m = 1000, rank 10:",
        table(["participants", "round, s", "idle", "connected", "peak", "beyond connections"], rows),
    ]


def _memory(one: Any) -> tuple[float, float, float, float]:
    return one.idle_kib, one.connected_kib, one.peak_kib, one.beyond_connections_kib


def many(results: Path) -> Section | None:
    """A thousand participants."""
    cohorts = document(results / "many.json")
    if not cohorts:
        return None
    few, most = cohorts[0], cohorts[-1]
    rows = [
        [
            str(one.participants),
            *(f"{kib / 1024:.0f} MiB" for kib in (one.idle_kib, one.connected_kib, one.peak_kib)),
            f"{one.per_connection_kib:.0f} KiB",
            f"{one.beyond_connections_kib / 1024:.0f} MiB",
        ]
        for one in cohorts
    ]
    return Section(
        "A thousand participants",
        (f"python -m benchmarks.many_participants --participants {most.participants} --rounds {most.rounds} --json",),
        paragraphs(
            "Light participants in a few processes, real mutual TLS, plain rounds of 1000 × 10; the aggregator's "
            "memory. A "
            f"round took {most.seconds_per_round:.1f} s with {most.participants}, all of them on the same two cores.",
            table(["participants", "idle", "connected", "peak", "a connection", "beyond connections"], rows),
        ),
        tuple(_short_of_asked(few, most)),
    )


def _short_of_asked(few: Any, most: Any) -> Iterator[str]:
    times = most.beyond_connections_kib / few.beyond_connections_kib
    if times > FLAT:
        yield (
            f"Beyond its connections the aggregator takes {times:.2f} times as much memory with {most.participants} "
            f"participants as with {few.participants} (goal: {FLAT:g})."
        )
    if most.seconds_per_round > ROUND_SECONDS:
        yield f"A round of {most.participants} takes {most.seconds_per_round:.1f} s (goal: {ROUND_SECONDS:g})."


def out_of_core(results: Path) -> Section | None:
    """A matrix larger than the memory the site may use."""
    data = document(results / "out_of_core.json")
    if data is None or not hasattr(data, "round_seconds"):
        return None
    seconds, ratios = sorted(data.round_seconds), sorted(one.ratio for one in data.rounds)
    limit, size = f"{data.memory_limit_mib:.0f}", f"{data.gib:.0f}"
    return Section(
        "Larger than memory",
        (f"python -m benchmarks.out_of_core --gib {size} --memory-limit {limit}MiB --rounds {len(ratios)} --finish",),
        paragraphs(
            f"A {data.shape[0]} × {data.shape[1]:,} matrix of {size} GiB on disk, rank {data.rank}, under a limit of "
            f"{limit} MiB: peak {data.peak_mib:.0f} MiB (of which {data.peak_before_mib:.0f} before it was opened), "
            f"{data.peak_with_finish_mib:.0f} MiB with the result written. One read of the file takes "
            f"{data.read_once_seconds:.1f} s (median), a round {seconds[0]:.1f} to {seconds[-1]:.1f} s with "
            f"{data.threads} threads, what a daemon saves included: {ratios[0]:.2f} to {ratios[-1]:.2f} times the read "
            "just before it.",
            *(part for one in _closing_records(results) for part in _closing_parts(one)),
        ),
        (f"A round over {size} GiB takes {ratios[-1]:.2f} reads of the file (goal: 1.5).",)
        if ratios[-1] > 1.5
        else tuple(_closing_short(one) for one in _closing_records(results)),
    )


def _closing_records(results: Path) -> list[Any]:
    """Whole runs with their closing rounds: from disk, and on a Dask cluster."""
    found = (document(results / f"out_of_core-{name}.json") for name in ("closing", "dask"))
    return [one for one in found if one is not None]


def _closing_parts(data: Any) -> tuple[str, str]:
    """A whole run in a sentence, and by stages."""
    option, where = f"--memory-limit {data.memory_limit_mib:.0f}MiB", "with the result"
    read = f"{data.reads + data.finish_reads:.1f} reads of the file in all"
    if data.dask:  # which maps the file
        option, where = "--dask", f"with the result, at the largest worker {data.largest_worker_mib:.0f} MiB"
        read = "the workers read the file once and hold it"
    pages = ""
    if not data.dask:
        option += f" --rounds {sum(one.stage == 'fit' for one in data.rounds)}"
        pages = f", of which {data.program_mib:.0f} and {data.program_with_finish_mib:.0f} are pages of program files"
    fit = _fit_seconds(data)
    rows = [
        [one.stage, str(one.rounds), f"{one.cpu_seconds:.1f} s", f"{one.cpu_seconds / fit:.1f}"] for one in data.stages
    ]
    rows.append(["result", "", f"{data.finish_cpu_seconds:.1f} s", f"{data.finish_cpu_seconds / fit:.1f}"])
    return (
        f"A whole run, `--gib {data.gib:.2g} {option} --finish`, beside other work on two cores, medians by stage: "
        f"peak {data.peak_mib:.0f} MiB in the rounds and {data.peak_with_finish_mib:.0f} MiB {where}{pages}; {read}. "
        f"Rounds of refinement that hide entries take {_refining(data, 0) / fit:.1f} fit rounds, the others "
        f"{_refining(data, -1) / fit:.1f}.",
        table(("stage", "rounds", "CPU a round", "in fit rounds"), rows),
    )


def _refining(data: Any, place: int) -> float:
    """CPU seconds of a round of refinement before validation (0) or after it (−1); the first of each is longer."""
    return float([one.cpu_seconds for one in data.rounds if one.stage == "refine"][place or 1])


def _closing_short(data: Any) -> str:
    fit = _fit_seconds(data)
    most = max((one for one in data.rounds if one.stage != "fit"), key=lambda one: float(one.cpu_seconds))
    return f"A closing round takes up to {most.cpu_seconds / fit:.0f} fit rounds ({most.stage}; goal: 2)."


def _fit_seconds(data: Any) -> float:
    """CPU seconds of a fit round."""
    return float(next(one.cpu_seconds for one in data.stages if one.stage == "fit"))
