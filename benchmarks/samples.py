"""Whole samples and instruments: what is found of bad ones, and what is named where nothing is wrong.

    python -m benchmarks.samples --data DIR [--only KIND,…] [--tables NAME,…] [--json FILE]

DIR holds `tables/*.npz`, and beside it lies `tools/cells.py`. Every run is a federation by the table's `site` with
`scaling = "robust"`, a rank that is not told, and seed 1.

- `none`: each table as a Gaussian copula with the table's own values: whatever is flagged or named is false.
- `shift`, `times`, `cluster`, `scrambled`: a fifth of a real table's samples has every feature moved by ± 3 deviations,
  or times 2.2, or lies near one point ± 3 deviations off, or has its standardized values in another order. The table's
  own odd samples count as false. Beside ours ROBPCA, with all data in one place, where R has rrcov.
- `fresh`: normal samples that had no part in runs over few (samples × features), with three factors and with none: the
  share of them with p ≤ .05 and ≤ .01.
- `stuck`, `drift`: 3 % of the entries belong to instruments that repeat a value or drift (tools/cells.py).
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.r_methods import ROBPCA, flagged
from benchmarks.real_tables import chosen_tables, tool_beside
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.simulate import Simulation, simulate
from dcfpca.spec import parse_spec
from participant.results.flag_tables import significant
from participant.results.scoring_model import scoring_model

BAD = ("shift", "times", "cluster", "scrambled")
INSTRUMENTS = ("stuck", "drift")
FRESH = "fresh"
KINDS = ("none", *BAD, *INSTRUMENTS, FRESH)
TRAINED = ((40, 20), (100, 20), (60, 100), (30, 200))  # samples × features
FACTORS, NOISE, REPEATS, JUDGED = np.array([1.5, 1.0, 0.7]), 0.8, 6, 1000
ROBPCA_KEYS = ("robpca_recall", "robpca_false")
SHARE, RATE, SEED, FLAG_RATE = 0.2, 0.03, 1, 0.01


def with_bad_samples(cells: Any, X: FloatArray, kind: str) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The table with a fifth of its samples spoiled, and which those are."""
    rng, (n, m) = np.random.default_rng(SEED), X.shape
    robust, sd = cells.scales(X)
    bad, centre = np.zeros(n, bool), np.nanmedian(X, axis=0)
    bad[rng.choice(n, round(SHARE * n), replace=False)] = True
    Y, count = X.copy(), int(bad.sum())
    if kind == "shift":
        Y[bad] += 3.0 * sd * rng.choice([-1, 1], (count, m))
    elif kind == "times":
        Y[bad] *= 2.2
    elif kind == "cluster":
        point = centre + 3.0 * sd * rng.choice([-1, 1], m) + 0.1 * sd * rng.normal(size=(count, m))
        Y[bad] = np.where(np.isnan(X[bad]), np.nan, point)
    else:
        Y[bad] = centre + robust * rng.permuted((X[bad] - centre) / robust, axis=1)
    return Y, bad


def measure(cells: Any, name: str, kind: str) -> dict[str, Any]:
    """One run, judged."""
    X, site = cells.load(name)
    bad, wrong, ignore = np.zeros(len(X), bool), np.zeros(X.shape, bool), np.zeros(X.shape, bool)
    if kind == "none":
        X = cells.without_errors(X, SEED)
    elif kind in INSTRUMENTS:
        X, wrong, ignore = cells.spoil(X, site, kind, RATE, SEED)
    else:
        X, bad = with_bad_samples(cells, X, kind)
    sites = [np.flatnonzero(site == number) for number in range(site.max() + 1)]
    method = method_of(parse_spec({"rows": X.shape[1], "scaling": "robust"}))
    run = simulate(method, [ArrayColumns(X[rows].T) for rows in sites])
    odd, named, lines = found_of(run, sites, X.shape)
    return {
        "kind": kind, "name": name, "recall": float(odd[bad].mean()) if bad.any() else 0.0,
        "false": float(odd[~bad].mean()), "instruments": lines, "f1": cells.judge(named, wrong, ignore)["f1"],
        "rounds": run.consensus.round, **(_by_robpca(X, bad) if kind in BAD else {}),
    }  # fmt: skip


def _by_robpca(X: FloatArray, bad: NDArray[np.bool_]) -> dict[str, float]:
    odd = flagged(ROBPCA, X)
    return {} if odd is None else {"robpca_recall": float(odd[bad].mean()), "robpca_false": float(odd[~bad].mean())}


def found_of(
    run: Simulation, sites: list[NDArray[np.intp]], shape: tuple[int, int]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], int]:
    """Which samples are flagged, as each site's table has it; the cells of instruments, and their number."""
    odd, named, lines = np.zeros(shape[0], bool), np.zeros(shape, bool), 0
    for rows, result in zip(sites, run.results, strict=True):
        odd[rows] = significant(result.p_values, FLAG_RATE)
        for one in result.instruments:
            named[rows[one.first : one.last + 1], one.feature] = True
            lines += 1
    return odd, named, lines


def fresh_rows() -> list[dict[str, Any]]:
    """How often fresh samples have a small p-value, for each size of the training set and kind of data."""
    rows = []
    for (n, m), factors in product(TRAINED, (FACTORS, FACTORS[:0])):
        p = np.concatenate([_fresh_p_values(n, m, factors, seed) for seed in range(REPEATS)])
        shares = {f"p_{level}": float(np.mean(p <= level)) for level in (0.05, 0.01)}
        rows.append({"kind": FRESH, "name": f"{n} x {m}, {factors.size} factors", **shares})
        print(f"{FRESH:>9}  {rows[-1]['name']}  " + "  ".join(f"{k} {v:.3g}" for k, v in shares.items()), flush=True)
    return rows


def _fresh_p_values(n: int, m: int, factors: FloatArray, seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    loadings = rng.normal(size=(m, factors.size)) * factors
    drawn = [loadings @ rng.normal(size=(factors.size, k)) + NOISE * rng.normal(size=(m, k)) for k in (n, JUDGED)]
    run = simulate(method_of(parse_spec({"rows": m, "scaling": "robust"})), [ArrayColumns(drawn[0])])
    model = scoring_model(run.consensus.broadcast, run.consensus.stage, scaled=True)
    assert model is not None  # no such run ends before its null
    return model.transform(drawn[1]).scored.p_value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--tables", default="")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    cells, tables = tool_beside(wanted.data, "cells"), chosen_tables(wanted.data, wanted.tables)
    record: dict[str, Any] = {"rows": [], "summary": {}}
    with threadpool_limits(1):
        for kind in wanted.only.split(","):
            if kind == FRESH:
                record["rows"] += fresh_rows()
                continue
            rows = [measure(cells, name, kind) for name in tables]
            figures = {key: float(np.mean([row[key] for row in rows])) for key in ("recall", "false", "f1")}
            figures |= {key: float(np.mean([row[key] for row in rows])) for key in ROBPCA_KEYS if key in rows[0]}
            figures |= {"false_worst": max(row["false"] for row in rows), "rounds_most": max(r["rounds"] for r in rows)}
            figures["instruments"] = sum(row["instruments"] for row in rows)
            record["rows"] += rows
            record["summary"][kind] = figures
            print(f"{kind:>9}  " + "  ".join(f"{key} {value:.3g}" for key, value in figures.items()), flush=True)
    if wanted.json is not None:
        wanted.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
