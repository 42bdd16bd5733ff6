"""What more refinement rounds would change: runs as they end against runs that go on for 400 rounds at their rank.

    python -m benchmarks.longer_refinement --data DIR [--sets asd,prsa,heart,highway] [--given] [--json FILE]

With `--given`, the rank is told. Other rows that FILE has are kept. Both runs share the fit and the choice of the
rank, and have the same noise
per feature. DIR and `tools/injected.py` beside it are those of `benchmarks.real_tables`. The objective is what columns
are fitted by, over all entries, under each run's own ridge (`dcfpca/rpca/refinement/alternating_fit.py`).
With rank 0 there is nothing to refine, and both runs are one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.real_tables import GIVEN, method_for, sizes_of, tool_beside
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement import refine
from dcfpca.rpca.refinement.alternating_fit import objective_by_column
from dcfpca.rpca.refinement.closing_plan import ClosingPlan
from dcfpca.rpca.round_limits import automatic_bound
from dcfpca.rpca.simulate import Simulation, simulate

LONGER = 400


def objective(sites: Sequence[FloatArray], run: Simulation) -> float:
    """The sum over all columns of what each is fitted by, under the run's own final plan."""
    model = ClosingPlan.of(run.consensus.broadcast).model
    pairs = (
        (own, (result.L - model.centre[:, None]).T @ model.U) for own, result in zip(sites, run.results, strict=True)
    )
    return float(sum(objective_by_column(model, own, V).sum() for own, V in pairs))


def compared(sites: Sequence[FloatArray], runs: Sequence[Simulation]) -> dict[str, object]:
    """Objective, flags, z and L of the first run against the second."""
    plan = ClosingPlan.of(runs[0].consensus.broadcast)
    ends = [objective(sites, run) for run in runs]
    flags = [np.concatenate([result.S.toarray() != 0.0 for result in run.results], axis=1) for run in runs]
    sizes = [
        np.concatenate(
            [sizes_of(run.consensus.broadcast, own - result.L) for own, result in zip(sites, run.results, strict=True)],
            axis=1,
        )
        for run in runs
    ]
    moved = (runs[0].low_rank - runs[1].low_rank) / plan.noise[:, None]
    return {
        "rank": plan.rank, "ranks_agree": plan.rank == ClosingPlan.of(runs[1].consensus.broadcast).rank,
        "rounds": [run.consensus.round for run in runs], "objective": ends, "excess": ends[0] / ends[1] - 1.0,
        "flags": [int(one.sum()) for one in flags], "flags_changed": int(np.count_nonzero(flags[0] != flags[1])),
        "L_moved": float(np.sqrt(np.mean(moved**2))), "z_moved": float(np.sqrt(np.mean((sizes[0] - sizes[1]) ** 2))),
        "entries": int(sum(np.isfinite(own).sum() for own in sites)),
    }  # fmt: skip


def measure(injected: Any, name: str, rank: int | None) -> dict[str, object]:
    _, sites, _ = injected.problem(name)
    rows = sites[0].shape[0]
    columns = [ArrayColumns(own) for own in sites]
    asked = method_for(rows, rank, automatic_bound(rows), "none")
    first = simulate(asked, columns)
    with patch.multiple(refine, MOST_ROUNDS=LONGER, REST=0.0, REST_OF_ERROR=0.0):
        longer = simulate(asked, columns)
    return {"set": name, "said": "auto" if rank is None else f"rank {rank}", **compared(sites, [first, longer])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default=",".join(GIVEN))
    parser.add_argument("--given", action="store_true", help="tell the ranks of benchmarks.real_tables")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    injected = tool_beside(wanted.data)
    found = []
    with threadpool_limits(1):
        for name in wanted.sets.split(","):
            found.append(measure(injected, name, GIVEN[name] if wanted.given else None))
            print(json.dumps(found[-1]), flush=True)
    if wanted.json is not None:
        kept = json.loads(wanted.json.read_text()) if wanted.json.exists() else []
        measured = {(row["set"], row["said"]) for row in found}
        found = [row for row in kept if (row["set"], row["said"]) not in measured] + found
        wanted.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
