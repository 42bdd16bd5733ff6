"""What an exchange costs: against bare gRPC, and against Flower."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.sections import Section, paragraphs, table

Row = dict[str, Any]
ASKED = 2.0  # times bare gRPC for a plain round, times plain for a secure one
LARGE_RANK, LARGE_ASKED = 100, 1.5  # times bare gRPC for a plain round of a larger tensor


def rounds(results: Path) -> Section | None:
    """Plain and secure rounds of sites that compute nothing."""
    found = [row for path in sorted(results.glob("rounds*.json")) for row in _rows(path)]
    if not found:
        return None
    first = found[0]
    shape = f"--participants {first['participants']} --rows {first['rows']} --rank {first['rank']}"
    return Section(
        "The exchange",
        (f"python -m benchmarks.rounds {shape} --rounds {first['rounds']} --aggregation plain --raw --json",),
        paragraphs(
            "Real processes with mutual TLS and the real protocol; sites compute nothing, and all processes share "
            f"two cores. The tensors alone are {2 * 8 * first['rows'] * first['rank'] / 1000:.0f} kB per participant "
            f"and round at {first['rows']} × {first['rank']}, both ways.",
            table(
                [
                    "sum",
                    "E",
                    "tensor",
                    "median round",
                    "bare gRPC, same run",
                    "kB per participant",
                    "aggregator's peak",
                ],
                [_round(row) for row in found],
            ),
            *_shares(found),
        ),
        tuple(_over(found)),
    )


def _shares(found: list[Row]) -> list[str]:
    """How much of the aggregator's CPU is gRPC's own, where that was measured."""
    said = [
        f"{row['aggregator_cpu_round_s'] * 1000:.0f} ms at {row['rows']} × {row['rank']} ({row['aggregation']}), of "
        f"which a bare server of the same bytes takes {row['raw_server_cpu_s'] * 1000:.0f}: "
        f"{row['raw_server_cpu_s'] / row['aggregator_cpu_round_s']:.0%} are gRPC's own"
        for row in found
        if row.get("raw_server_cpu_s") and row.get("aggregator_cpu_round_s")
    ]
    if not said:
        return []
    return [
        f"The aggregator's CPU in a round: {'; '.join(said)}. The rest is work that a bare exchange does not do: "
        "a SHA-256 of every tensor, the file of every update, the compensated sum, the method's step, the transaction "
        "that opens the next round, and the Python of checks, rules and streams. All processes share two cores, "
        "so that a "
        "round lasts at least half of what aggregator and sites take of CPU together: "
        + ", ".join(f"{row['cpu_round_s'] * 1000:.0f} ms" for row in found if row.get("raw_server_cpu_s"))
        + "."
    ]


def _rows(path: Path) -> list[Row]:
    held = json.loads(path.read_text())
    return held if isinstance(held, list) else [held]


def _round(row: Row) -> list[str]:
    raw, peak = row.get("raw_round_s"), row.get("aggregator_peak_bytes")
    return [
        f"{row['aggregation']}, {row['precision']} bits",
        str(row["participants"]),
        f"{row['rows']} × {row['rank']}",
        f"{row['median_round_s'] * 1000:.0f} ms",
        f"{raw * 1000:.0f} ms" if raw else "–",
        f"{row['bytes_per_participant_round'] / 1000:.0f}",
        f"{peak / 2**20:.0f} MiB" if peak else "–",
    ]


def _over(found: list[Row]) -> list[str]:
    plain = [row for row in found if row["aggregation"] == "plain" and row.get("raw_round_s")]
    pairs = [
        (
            f"A plain round of {row['rows']} × {row['rank']}",
            row["median_round_s"] / row["raw_round_s"],
            "bare gRPC",
            most,
        )
        for row in plain
        if (most := LARGE_ASKED if row["rank"] > LARGE_RANK else ASKED)
    ]
    by_shape = {(row["participants"], row["rows"], row["rank"]): row["median_round_s"] for row in plain}
    pairs += [
        (f"A secure round ({row['precision']} bits)", row["median_round_s"] / beside, "a plain one", ASKED)
        for row in found
        if row["aggregation"] == "secure" and (beside := by_shape.get((row["participants"], row["rows"], row["rank"])))
    ]
    return [f"{what} takes {times:.1f} times {of} (goal: {most:g})." for what, times, of, most in pairs if times > most]


def _kilobytes(count: float | None) -> str:
    return f"{count / 1000:.0f}" if count else "–"
