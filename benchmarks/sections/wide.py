"""Many features, many columns at a site, and many sites of a secure run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.sections import Section, document, paragraphs, table


def wide(results: Path) -> Section | None:
    """By features, and by columns of a site."""
    cases = document(results / "wide.json")
    if not cases:
        return None
    features = [one for one in cases if one.rows > 1000]
    columns = [one for one in cases if one.rows <= 1000]
    return Section(
        "Many features, many columns",
        ("python -m benchmarks.wide --json benchmarks/results/wide.json",),
        paragraphs(
            "Three sites with real daemons, secure sums and rank 10, on two cores beside other work. Each site has 40 "
            "columns; lines differ by the number of features. With 500,000 features only the fit was run: its closing "
            "rounds would take about ten times the line above, which was not measured. Bytes are linear in the "
            "features: m × (rank + 142) numbers in a round of refinement, m × 168 in that of the null. A site needs "
            "the memory of about 16 updates, the aggregator that of 13. `run start` says so before a run, and a site "
            "with a memory limit refuses a larger one.",
            table(HEAD, [_row(one, f"{one.rows:,}") for one in features]),
            "100 features, by the number of columns per site. The size of an update does not depend on that "
            "number, and CPU "
            "grows no faster than it does; most of it goes into judging every entry by all others (m² n operations) "
            "in the null and check rounds and in the results.",
            table(HEAD, [_row(one, f"{one.columns:,}") for one in columns]),
        ),
    )


HEAD = ["size", "fit round", "MB a site", "slowest round", "MB a site", "results", "CPU, all", "site", "aggregator"]


def _row(one: Any, size: str) -> list[str]:
    fit = next(stage for stage in one.stages if stage.stage == "fit")
    slowest = max(one.stages, key=lambda stage: stage.seconds)
    return [
        size,
        f"{fit.seconds:.2g} s",
        f"{fit.site_bytes / 1e6:.3g}",
        f"{slowest.seconds:.3g} s ({slowest.stage})",
        f"{slowest.site_bytes / 1e6:.3g}",
        f"{one.results_seconds:.0f} s",
        f"{one.cpu_seconds:.0f} s",
        f"{one.site_with_results_mib:.0f} MiB",
        f"{one.aggregator_mib[1]:.0f} MiB",
    ]


def many_secure(results: Path) -> Section | None:
    """Members of one secure run."""
    cohorts = document(results / "many-secure.json")
    if not cohorts:
        return None
    most = cohorts[-1]
    pairs = (most.peak_kib - most.connected_kib) / most.participants**2
    rows = [
        [
            str(one.participants),
            str(one.neighbours),
            f"{one.set_up_seconds:.3g} s",
            f"{one.set_up_cpu_seconds * 1e3:.0f} ms",
            f"{one.set_up_sent / 1e3:.0f} / {one.set_up_received / 1e3:.0f} kB",
            f"{one.seconds_per_round:.2g} s",
            f"{one.aggregator_cpu_seconds:.1f} s",
            f"{one.peak_kib / 1024:.0f} MiB",
        ]
        for one in cohorts
    ]
    return Section(
        "Many sites of a secure run",
        ("python -m benchmarks.many_secure --json benchmarks/results/many-secure.json",),
        paragraphs(
            "Light members in two processes against the real aggregator, 1000 × 10; all share two cores with other "
            "work, so seconds are upper bounds. The set-up grows with the square of the sites: every member seals a "
            "share for every other, 1.27 kB because of its ML-KEM ciphertext, and receives everybody's key twice. "
            f"The aggregator checks a signature for each pair and holds {pairs:.1f} kB of it until round 0 is over. A "
            "member shares masks only with its neighbours on a ring, so a round grows only in proportion to the "
            "sites.",
            table(
                [
                    "sites",
                    "masks with",
                    "set-up",
                    "CPU of a site",
                    "sent / received",
                    "round",
                    "CPU, aggregator",
                    "peak",
                ],
                rows,
            ),
            "1,000 sites were tried once: their set-up had not ended after 15 minutes on this machine. By that "
            f"square they need {1000**2 * pairs / 2**20:.1f} GiB at the aggregator, 1.3 MB sent and 5 MB received by "
            "each.",
        ),
    )
