"""Whether a run's answer depends on which entries its sites hide: ranks, flags and prediction over several keys.

    python -m benchmarks.rank_choice --data DIR [--keys 12] [--tables NAME,…] [--json FILE]

DIR holds `tables/*.npz`. Sites draw the keys that decide which entries they hide; a run is repeated with other keys,
as a federation by the table's `site` with `scaling = "robust"` and a rank that is not told.

- `ranks`: the least and the largest rank over the keys. `same`: of the cells flagged with any key, the share flagged
  with all. `rounds`: the most.
- `above`: by how much the hidden entries are predicted worse at the ranks that runs chose than at the best rank of full
  cross-validation: the errors of all keys together, each of which hides other entries, on average and of the worst run.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.refinement.closing_stage import CURVE
from dcfpca.rpca.simulate import simulate
from dcfpca.spec import parse_spec


def measure(path: Path, keys: int) -> dict[str, Any]:
    """Repeat the run of this table with so many keys."""
    with np.load(path, allow_pickle=False) as file:
        X, site = file["X"].astype(np.float64), file["site"].astype(int)
    method = method_of(parse_spec({"rows": X.shape[1], "scaling": "robust"}))
    sites = [ArrayColumns(X[site == number].T) for number in range(site.max() + 1)]
    flags, curves, ranks, rounds = [], [], [], []
    for key in range(keys):
        run = simulate(method, sites, keys=[b"%d at %d" % (key, number) for number in range(len(sites))])
        flags.append(run.outliers.toarray() != 0.0)
        curves.append(run.consensus.memory[CURVE])
        ranks.append(run.consensus.progress.rank)
        rounds.append(run.consensus.round)
    tried, error = curves[0][:, 0], np.mean([curve[:, 1] for curve in curves], axis=0)
    above = np.interp(ranks, tried, error) / error.min() - 1.0
    ever, always = np.any(flags, axis=0).sum(), np.all(flags, axis=0).sum()
    return {
        "table": path.stem, "keys": keys, "ranks": [min(ranks), max(ranks)], "best_rank": int(tried[error.argmin()]),
        "flagged": int(ever), "same": float(always / ever) if ever else 1.0, "rounds": max(rounds),
        "above_mean": float(above.mean()), "above_worst": float(above.max()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--keys", type=int, default=12)
    parser.add_argument("--tables", default="", help="tables to run; without, all")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    paths = sorted((wanted.data / "tables").glob("*.npz"))
    rows = []
    with threadpool_limits(1):
        for path in (path for path in paths if not wanted.tables or path.stem in wanted.tables.split(",")):
            rows.append(measure(path, wanted.keys))
            print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    same, above = [row["same"] for row in rows], [row["above_mean"] for row in rows]
    print(f"flags the same {np.mean(same):.3f}, worst table {min(same):.3f}; prediction worse than by full ", end="")
    print(f"cross-validation by {100 * np.mean(above):.1f} %, worst table {100 * max(above):.1f} %")
    if wanted.json is not None:
        wanted.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
