"""What the secure sum costs beside a plain exchange: time, CPU, bytes, round trips, set-up and verification."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

from benchmarks.sections import Section, paragraphs, table

Row = dict[str, Any]
ROUND, VERIFIED, BYTES, TRIPS = 1.25, 1.15, 1.01, 1.6  # times plain, times unverified, times 2·m·r·8, beyond transfer
SLOW = 1.3  # times work, transfer and two round trips a round
MASKING_S, SET_UP_S = 0.040, {10: 1.0, 64: 5.0}
_UNVERIFIED = "secure, verify = never"


def secure_rounds(results: Path) -> Section | None:
    """Plain and secure rounds in turns, and what masking takes of a site's CPU."""
    path = results / "secure-rounds.json"
    if not path.exists():
        return None
    rows: list[Row] = json.loads(path.read_text())
    loads = sorted(row["load"] for row in rows)
    return Section(
        "The secure sum beside the plain one",
        ("python -m benchmarks.rounds.secure --json benchmarks/results/secure-rounds.json",),
        paragraphs(
            "1000 × 50, sites that compute nothing, all processes and all their disks on one machine of two cores; "
            f"the kinds take turns ({rows[0]['turns']} each of ten sites); medians. CPU is that of the process, "
            f"whatever else the machine did. The load of the machine, these processes included, was {loads[0]:.0f} to "
            f"{loads[-1]:.0f}, so seconds are upper bounds and ratios of seconds are rough. Bytes are both ways, "
            "against 2 · m · r · 8. `sampled` is the default.",
            "Before an answer of a secure round leaves, a site has synced its numbers and its key record to the disk, "
            "which a plain round does not need; here ten sites share one disk for that.",
            table(
                ["sum", "sites", "median round", "CPU of all processes, a round", "bytes", "set-up", "masking, a site"],
                [_cells(row) for row in rows],
            ),
        ),
        tuple(_short(rows)),
    )


def _cells(row: Row) -> list[str]:
    masked = row.get("masking_cpu_s")
    cpu = row.get("cpu_round_s")
    return [
        row["kind"],
        str(row["participants"]),
        f"{row['median_round_s'] * 1000:.0f} ms",
        f"{cpu * 1000:.0f} ms" if cpu else "–",
        f"{row['bytes_over_tensors']:.3f}",
        f"{row['set_up_s']:.2f} s" if row["set_up_s"] else "–",
        f"{masked * 1000:.1f} ms of CPU" if masked else "–",
    ]


def _short(rows: list[Row]) -> list[str]:
    by_kind = {(row["kind"], row["participants"]): row for row in rows}
    plain, secure = (by_kind.get((kind, 10)) for kind in ("plain", "secure"))
    found = []
    if plain and secure:
        found += _over("A secure round of ten sites", secure, plain, ROUND, "a plain one")
    if secure and (bare := by_kind.get((_UNVERIFIED, 10))):
        found += _over("A secure round with verification", secure, bare, VERIFIED, "one without")
    if secure and secure["bytes_over_tensors"] > BYTES:
        found.append(
            f"A secure round moves {secure['bytes_over_tensors']:.2f} times 2 · m · r · 8 (goal: {BYTES:g}), as "
            f"verified rounds fetch the sum; without, {by_kind[_UNVERIFIED, 10]['bytes_over_tensors']:.3f} times."
        )
    for row in rows:
        if row.get("masking_cpu_s", 0.0) > MASKING_S:
            found.append(f"Masking takes {row['masking_cpu_s'] * 1000:.0f} ms of a site's CPU (goal: 40).")
        if row["set_up_s"] > SET_UP_S.get(row["participants"], inf):
            found.append(f"The set-up of {row['participants']} sites takes {row['set_up_s']:.1f} s.")
    return found


def _over(what: str, one: Row, other: Row, asked: float, of: str) -> list[str]:
    times = one["median_round_s"] / other["median_round_s"]
    cpu = one.get("cpu_round_s", 0.0) / other["cpu_round_s"] if other.get("cpu_round_s") else 0.0
    said = f", {cpu:.2f} times its CPU" if cpu else ""
    return [f"{what} takes {times:.2f} times {of}{said} (goal: {asked:g})."] if times > asked else []


def delayed_rounds(results: Path) -> Section | None:
    """Round trips of a round over a line with delay."""
    path = results / "delayed-rounds.json"
    if not path.exists():
        return None
    rows: list[Row] = json.loads(path.read_text())
    over = [row for row in rows if row["aggregation"] == "secure" and row["round_trips_beyond_transfer"] > TRIPS]
    return Section(
        "Over a line with delay",
        ("python -m benchmarks.rounds.delayed --json benchmarks/results/delayed-rounds.json",),
        paragraphs(
            f"{rows[0]['participants']} sites in one network namespace and the aggregator in another, every frame "
            f"delayed by {rows[0]['one_way_ms']:g} ms each way. *Round trips* is what the delay adds to a median "
            "round, in units of 100 ms. *Beyond the transfer* subtracts what the delay adds to a bare exchange of "
            "these bytes over TCP beyond its one round trip. Large tensors take less than the bare exchange, whose "
            "connections fall idle.",
            table(
                ["sum", "tensor", "round", "with delay", "round trips", "beyond the transfer"],
                [
                    [
                        row["aggregation"],
                        f"{row['rows']} × {row['rank']}",
                        f"{row['round_s'] * 1000:.0f} ms",
                        f"{row['delayed_round_s'] * 1000:.0f} ms",
                        f"{row['round_trips']:.2f}",
                        f"{row['round_trips_beyond_transfer']:.2f}",
                    ]
                    for row in rows
                ],
            ),
        ),
        tuple(
            f"A secure round of {row['rows']} × {row['rank']} takes {row['round_trips_beyond_transfer']:.2f} round "
            f"trips beyond the transfer (goal: {TRIPS:g})."
            for row in over
        ),
    )


def slow_line(results: Path) -> Section | None:
    """Whole runs over a slow line."""
    path = results / "slow-line.json"
    if not path.exists():
        return None
    rows: list[Row] = json.loads(path.read_text())
    first = rows[0]
    return Section(
        "Over a slow line",
        ("python -m benchmarks.rounds.delayed --slow-line benchmarks/results/slow-line.json",),
        paragraphs(
            f"A run of {first['participants']} sites, {first['rows']} × {first['rank']}, {first['rounds']} rounds, "
            f"from its proposal to its end, {first['one_way_ms']:g} ms each way and {first['rate_kbit'] / 1000:g} "
            "Mbit/s, which all sites share. *Work* is the same run without delay or limit; *transfer* is all bytes "
            "both ways, one after the other. Two round trips per round come on top. The emulated line uses CPU "
            "of the same machine.",
            table(
                ["sum", "run", "work", "transfer", "round trips", "run over their sum"],
                [
                    [
                        f"{row['aggregation']}, {row['precision']} bits",
                        *(f"{row[part]:.1f} s" for part in ("run_s", "work_s", "transfer_s", "round_trips_s")),
                        f"{_over_sum(row):.2f}",
                    ]
                    for row in rows
                ],
            ),
        ),
        tuple(
            f"A {row['aggregation']} run over a slow line takes {_over_sum(row):.2f} times work, transfer and two "
            f"round trips a round (goal: {SLOW:g})."
            for row in rows
            if _over_sum(row) > SLOW
        ),
    )


def _over_sum(row: Row) -> float:
    return float(row["run_s"] / (row["work_s"] + row["transfer_s"] + row["round_trips_s"]))
