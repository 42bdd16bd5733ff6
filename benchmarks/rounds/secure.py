"""What the secure sum costs beside a plain one, in one sitting: rounds of sites that compute nothing, turn by turn.

    python -m benchmarks.rounds.secure --json benchmarks/results/secure-rounds.json

Plain, secure and secure without verification take turns, so that whatever else the machine does falls on all of them;
a figure is the median over the rounds of all turns. Cohorts of 64 and 100 are set up once each.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.rounds.masking_cost import measure_masking
from benchmarks.rounds.round_cost import RoundCase, RoundFigures, measure_rounds

KINDS = {
    "plain": ("plain", "sampled"),
    "secure": ("secure", "sampled"),
    "secure, verify = never": ("secure", "never"),
    "secure, verify = always": ("secure", "always"),
}
FEW, MANY, MOST = 10, 64, 100


def measured(case: RoundCase) -> RoundFigures:
    """One run of the case in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="dcfpca-bench-") as directory:
        return measure_rounds(case, Path(directory))


def row(kind: str, case: RoundCase, turns: list[RoundFigures]) -> dict[str, Any]:
    """The figures of one kind over all turns, and the load that the machine had at the end of them."""
    tensors = 2 * 8 * case.rows * case.rank
    found: dict[str, Any] = {
        "kind": kind,
        **asdict(case),
        "turns": len(turns),
        "median_round_s": median(one.median_round_s for one in turns),
        "min_round_s": min(one.min_round_s for one in turns),
        "cpu_round_s": median(one.cpu_round_s for one in turns),
        "set_up_s": median(one.set_up_s for one in turns),
        "bytes_over_tensors": turns[0].bytes_per_participant_round / tensors,
        "load": os.getloadavg()[0],
    }
    if case.aggregation == "secure":
        found |= asdict(measure_masking(case.participants, case.rows * case.rank))
    return found


def compare(participants: int, kinds: list[str], turns: int, rounds: int) -> list[dict[str, Any]]:
    """Let these kinds take turns."""
    base = RoundCase(participants, 1000, 50, rounds, "plain", 64)
    cases = {kind: replace(base, aggregation=KINDS[kind][0], verify=KINDS[kind][1]) for kind in kinds}
    found: dict[str, list[RoundFigures]] = {kind: [] for kind in kinds}
    for _ in range(turns):
        for kind, case in cases.items():
            found[kind].append(measured(case))
    return [row(kind, cases[kind], found[kind]) for kind in kinds]


def main() -> None:
    """Measure, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", type=int, choices=(FEW, MANY, MOST), help="measure this number of sites alone")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(given.json.read_text()) if given.json.exists() else []
    if given.only in (None, FEW):
        rows = [one for one in rows if one["participants"] != FEW] + compare(
            FEW, list(KINDS), given.turns, given.rounds
        )
    if given.only in (None, MANY):
        rows = [one for one in rows if one["participants"] != MANY] + compare(MANY, ["plain", "secure"], 1, 6)
    if given.only in (None, MOST):
        rows = [one for one in rows if one["participants"] != MOST] + compare(MOST, ["secure"], 1, 4)
    given.json.write_text(json.dumps(rows, indent=2) + "\n")
    for one in rows:
        print(f"{one['kind']:>24} {one['participants']:3d} sites {one['median_round_s'] * 1e3:7.1f} ms")


if __name__ == "__main__":
    main()
