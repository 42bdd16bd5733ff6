"""What starting, idling and a small job cost."""

from __future__ import annotations

from pathlib import Path

from benchmarks.sections import Section, document, paragraphs, table

ASKED_CPU = {"dcfpca --help": 0.35, "dcfpca-participant --help": 0.4, "dcfpca-aggregator health": 0.4}
ASKED_READY = 2.0
ASKED_IDLE = 0.005
ASKED_JOB, ASKED_ROUNDS, ASKED_DELAYED = 4.0, 24, 24 * 0.2


def start_up(results: Path) -> Section | None:
    """CPU of commands, seconds to ready, CPU at rest."""
    data = document(results / "start-up.json")
    if data is None:
        return None
    cpu = vars(data.command_cpu_s)
    kinds = list(dict.fromkeys(one.what for one in data.starts))
    ready = {kind: min(one.ready_s for one in data.starts if one.what == kind) for kind in kinds}
    begun = {kind: min(one.cpu_s for one in data.starts if one.what == kind) for kind in kinds}
    resting = {one.what: one.share for one in data.idle}
    services = [[kind, f"{ready[kind]:.2f}", f"{begun[kind]:.2f}", f"{100 * resting[kind]:.2f} %"] for kind in kinds]
    return Section(
        "Start and rest",
        ("python -m benchmarks.start_up --json benchmarks/results/start-up.json",),
        paragraphs(
            f"Three sites over mutual TLS; the best of {data.repeats}. A participant is ready when the operator sees "
            f"it connected, the aggregator when it listens; at rest, the share of one core over "
            f"{data.idle[0].seconds:.0f} s with all of them connected and no run.",
            table(["command", "CPU s"], [[f"`{name}`", f"{seconds:.2f}"] for name, seconds in cpu.items()]),
            table(["service", "ready after, s", "CPU s by then", "at rest"], services),
        ),
        (
            *(
                f"`{name}` takes {cpu[name]:.2f} s of CPU (goal: {most:g})."
                for name, most in ASKED_CPU.items()
                if cpu[name] > most
            ),
            *(
                f"The {kind} is ready after {took:.1f} s (goal: {ASKED_READY:g})."
                for kind, took in ready.items()
                if took > ASKED_READY
            ),
            *(
                f"The {kind} takes {100 * share:.2f} % of a core at rest (goal: {100 * ASKED_IDLE:g})."
                for kind, share in resting.items()
                if share > ASKED_IDLE
            ),
        ),
    )


def small_job(results: Path) -> Section | None:
    """Four small tables, from `run start` to results, with and without delay."""
    data = document(results / "small-job.json")
    if data is None:
        return None
    near, far = data[0], data[-1]
    best = min(near.runs, key=lambda one: one.seconds)
    added = far.seconds - near.seconds
    stages = [
        [
            one.stage,
            str(one.rounds),
            f"{one.seconds:.2f}",
            f"{one.awaited_seconds:.2f}",
            f"{one.bytes_received / 4e3:.0f} kB",
        ]
        for one in best.stages
    ]
    return Section(
        "A small job",
        ("python -m benchmarks.small_job --json benchmarks/results/small-job.json",),
        paragraphs(
            'Four sites of 260 samples and 20 features, `scaling = "robust"`, by the commands, from the start of '
            f"`dcfpca run start` until every site has written its results: {best.seconds:.1f} s the better and "
            f"{max(one.seconds for one in near.runs):.1f} the first of {len(near.runs)} jobs at a load of "
            f"{near.load:.0f} on two cores; {best.rounds} rounds. With {far.delay_ms:.0f} ms of delay each way "
            f"{added:.1f} s more. The better job by stage; bytes are those that a site sends:",
            table(["stage", "rounds", "s", "awaiting sites, s", "a site sends"], stages),
        ),
        (
            *(
                [f"It takes {near.seconds:.1f} s in the median (goal: {ASKED_JOB:g})."]
                if near.seconds > ASKED_JOB
                else []
            ),
            *([f"It takes {best.rounds} rounds (goal: {ASKED_ROUNDS})."] if best.rounds > ASKED_ROUNDS else []),
            *([f"Delay adds {added:.1f} s (goal: {ASKED_DELAYED:g})."] if added > ASKED_DELAYED else []),
        ),
    )
