"""What a site gains by taking part: quality of its flags against its number of columns, federated and alone.

    python -m benchmarks.site_gain --data DIR [--sets highway,prsa,asd] [--json FILE]

Rows of other sets that FILE has are kept. Of every site so many columns are taken, evenly spaced, with the errors that
`tools/injected.py` beside DIR puts in. The federated run has all sites with as many columns each; alone, every site
runs by itself. One setting for all: the defaults of a run. The figures are pooled over sites, so that both ways are
judged on the same entries.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.real_tables import method_for, sizes_of, tool_beside
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.closing_plan import CHECK, NULL
from dcfpca.rpca.round_limits import automatic_bound
from dcfpca.rpca.simulate import simulate

COLUMNS = (5, 10, 20, 50, 100, 200, 500, 1000)
FIGURES = Path(__file__).parents[1] / "docs" / "figures"


def few_columns(sites: Sequence[FloatArray], count: int) -> list[FloatArray]:
    """So many columns of each site, evenly spaced."""
    return [own[:, np.linspace(0, own.shape[1] - 1, count).astype(int)] for own in sites]


def flags_and_scores(groups: Sequence[list[FloatArray]]) -> tuple[list[FloatArray], list[FloatArray], list[int]]:
    """Flags and |residual| over the null's scale of every site, each group in a run of its own, and the ranks."""
    flags, scores, ranks = [], [], []
    for sites in groups:
        rows = sites[0].shape[0]
        run = simulate(method_for(rows, None, automatic_bound(rows), "none"), [ArrayColumns(own) for own in sites])
        sized = run.consensus.stage in (NULL, CHECK)
        ranks.append(run.consensus.progress.rank)
        for own, result in zip(sites, run.results, strict=True):
            flags.append(result.S.toarray() != 0.0)
            scores.append(sizes_of(run.consensus.broadcast, own - result.L) if sized else np.zeros(own.shape))
    return flags, scores, ranks


def measure(injected: Any, name: str) -> Iterator[dict[str, object]]:
    """One row per number of columns and way."""
    _, sites, truth = injected.problem(name)
    for count in (count for count in COLUMNS if count <= min(own.shape[1] for own in sites)):
        taken, hit = few_columns(sites, count), few_columns(truth, count)
        for way, groups in (("federated", [taken]), ("alone", [[own] for own in taken])):
            flags, scores, ranks = flags_and_scores(groups)
            found = injected.judge(flags, scores, hit, taken)
            yield {"set": name, "columns": count, "way": way, "sites": len(sites), "ranks": ranks, **found}


def draw(rows: Sequence[dict[str, Any]], out: Path) -> None:
    """F1 and area under ROC by columns per site, a panel for each set."""
    names = list(dict.fromkeys(row["set"] for row in rows))
    figure, axes = plt.subplots(2, len(names), figsize=(3.4 * len(names), 5.4), sharex=True, squeeze=False)
    for place, name in enumerate(names):
        for line, (key, title) in enumerate((("f1", "F1 of the flags"), ("auc", "area under ROC"))):
            for way, style in (("federated", "o-"), ("alone", "s--")):
                own = [row for row in rows if row["set"] == name and row["way"] == way]
                axes[line][place].plot([row["columns"] for row in own], [row[key] for row in own], style, label=way)
            axes[line][place].set(xscale="log", ylabel=title if place == 0 else "", title=name if line == 0 else "")
            axes[line][place].grid(alpha=0.3)
        axes[1][place].set_xlabel("columns per site")
    axes[0][0].legend()
    figure.tight_layout()
    for kind in ("png", "svg"):
        figure.savefig(out.with_suffix(f".{kind}"), dpi=120, metadata={"Date": None} if kind == "svg" else None)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default="highway,prsa,asd")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    injected, found = tool_beside(wanted.data), []
    with threadpool_limits(1):
        for name in wanted.sets.split(","):
            for row in measure(injected, name):
                found.append(row)
                print(
                    f"{row['set']} {row['columns']} {row['way']}: F1 {row['f1']:.3f}, AUC {row['auc']:.4f}", flush=True
                )
    if wanted.json is not None:
        kept = json.loads(wanted.json.read_text()) if wanted.json.exists() else []
        found = [row for row in kept if row["set"] not in wanted.sets.split(",")] + found
        wanted.json.write_text(json.dumps(found, indent=1) + "\n")
        draw(found, FIGURES / "site-gain")


if __name__ == "__main__":
    main()
