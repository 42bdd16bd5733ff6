"""What an exchange costs: against bare gRPC, and against Flower."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.sections import Section, paragraphs, power, table

Row = dict[str, Any]
ASKED = 2.0  # times bare gRPC for a plain round, times plain for a secure one


def rounds(results: Path) -> Section | None:
    """Plain and secure rounds of sites that compute nothing."""
    found = [row for path in sorted(results.glob("rounds*.json")) for row in _rows(path)]
    if not found:
        return None
    first = found[0]
    shape = f"--participants {first['participants']} --rows {first['rows']} --rank {first['rank']}"
    return Section(
        "The exchange",
        (f"dcfpca bench rounds {shape} --rounds {first['rounds']} --aggregation plain --raw --json",),
        paragraphs(
            "Real processes, mutual TLS, the real protocol, sites that compute nothing; all of them on two cores. The "
            "tensors alone are "
            f"{2 * 8 * first['rows'] * first['rank'] / 1000:.0f} kB per participant and round, both ways.",
            table(
                ["sum", "E", "median round", "bare gRPC, same run", "kB per participant", "aggregator's peak"],
                [_round(row) for row in found],
            ),
        ),
        tuple(_over(found)),
    )


def _rows(path: Path) -> list[Row]:
    held = json.loads(path.read_text())
    return held if isinstance(held, list) else [held]


def _round(row: Row) -> list[str]:
    raw, peak = row.get("raw_round_s"), row.get("aggregator_peak_bytes")
    return [
        f"{row['aggregation']}, {row['precision']} bits",
        str(row["participants"]),
        f"{row['median_round_s'] * 1000:.0f} ms",
        f"{raw * 1000:.0f} ms" if raw else "–",
        f"{row['bytes_per_participant_round'] / 1000:.0f}",
        f"{peak / 2**20:.0f} MiB" if peak else "–",
    ]


def _over(found: list[Row]) -> list[str]:
    plain = next((row for row in found if row["aggregation"] == "plain" and row.get("raw_round_s")), None)
    if plain is None:
        return []
    pairs = [("A plain round", plain["median_round_s"] / plain["raw_round_s"], "bare gRPC")]
    pairs += [
        (f"A secure round ({row['precision']} bits)", row["median_round_s"] / plain["median_round_s"], "a plain one")
        for row in found
        if row["aggregation"] == "secure" and row["participants"] == plain["participants"]
    ]
    return [f"{what} takes {times:.1f} times {of} (asked: {ASKED:g})." for what, times, of in pairs if times > ASKED]


def flower(results: Path) -> Section | None:
    """The same tensors through Flower."""
    path = results / "federated.json"
    found = _rows(path) if path.exists() else []
    if not found:
        return None
    first = found[0]
    return Section(
        "Against Flower",
        ("python -m benchmarks.flower_comparison --flower-python PATH --json benchmarks/results/federated.json",),
        paragraphs(
            f"The same {first['rows']} × {first['rank']} float64 exchange with {first['participants']} sites in one "
            "run, "
            "the local step doing nothing, all processes on two cores. Ours with mutual TLS; Flower with a "
            "SuperLink, one "
            "SuperNode per site and TLS of the server, in-memory state, runtime installation off. Flower's bytes "
            "are those "
            "on the wire, with polling; ours those of the messages, without TLS.",
            table(
                ["system", "median round", "kB per participant and round"],
                [
                    [row["system"], f"{power(row['median_round_s'])} s", _kilobytes(row["bytes_per_participant_round"])]
                    for row in found
                ],
            ),
            "Flower's round is long because a SuperNode that finds no message sleeps 3 s, waits for its reply in "
            "steps of "
            "half a second, and starts a new Python process for every message, ten of them on two cores; with more "
            "cores "
            "the starts would overlap, the polling would remain. It runs any training code in fresh processes, and "
            "minutes of local training hide these seconds. Both run their defaults beside what is named.",
        ),
        () if any("Flower" in row["system"] for row in found) else ("Flower was not installed and is not compared.",),
    )


def _kilobytes(count: float | None) -> str:
    return f"{count / 1000:.0f}" if count else "–"
