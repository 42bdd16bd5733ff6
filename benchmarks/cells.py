"""How true the list of flagged entries is: tables without errors, with errors put in, and what a run says of both.

    python -m benchmarks.cells --data DIR [--quick] [--only GROUP,…] [--tables NAME,…] [--json FILE]

DIR holds `tables/*.npz`, and beside it lies `tools/cells.py`, which puts errors in, makes tables without errors and
judges. Every run is a federation by the table's `site` with `scaling = "robust"`, a rank that is not told, and seed 0.

- `null`: each table as a Gaussian copula with the table's own values. Every flag is false.
- `shape`: made-up tables, 800 × 20 at four sites, with noise or values of one distribution. Every flag is false.
- `first`: the data of docs/first-data-set.md, seeds 1 to 20: four gross errors in 300 samples of eight measurements.
- `errors`: 3 % of a real table's entries changed in one of five ways; its own oddities count as false.
- `order`: not the cut but the order of entries by |z|, against one isolation forest per feature on the residuals of its
  ridge regression on the others (pooled): the best F1 that any cut of either order has. Not run unless named.
- `stated`: the same errors in the table's copula: how many lines of the list are ordinary, as the run says and in
  truth, over all lists whose run checked itself; in how many of those the truth lies within the stated interval.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

from benchmarks.real_tables import chosen_tables, tool_beside
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.closing_plan import VERDICT, ClosingPlan
from dcfpca.rpca.refinement.scoring import transform_columns
from dcfpca.rpca.scaling import split_broadcast
from dcfpca.rpca.simulate import Simulation, simulate
from dcfpca.spec import parse_spec

GROUPS = ("null", "shape", "first", "errors", "stated")
WAYS = ("additive", "decimal", "unit", "swap", "sign")
QUICK = ("boston", "breast", "philips", "wine")
SHAPES = ("gaussian", "t3", "t5", "laplace", "exponential", "chi2", "lognormal", "poisson", "binary", "offset")
RATE, SEED = 0.03, 1


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Samples × features, the site of each sample, and which entries are wrong (`ignore`: changed, but hardly)."""

    group: str
    name: str
    X: FloatArray
    site: NDArray[np.int_]
    wrong: NDArray[np.bool_]
    ignore: NDArray[np.bool_]

    @staticmethod
    def clean(group: str, name: str, X: FloatArray, site: NDArray[np.int_]) -> Problem:
        """A problem in which nothing is wrong."""
        return Problem(group, name, X, site, np.zeros(X.shape, bool), np.zeros(X.shape, bool))


def problems(cells: Any, group: str, tables: tuple[str, ...], quick: bool) -> Iterator[Problem]:
    """All problems of a group."""
    if group == "shape":
        for number, shape in enumerate(SHAPES):
            yield Problem.clean(group, shape, _shaped(shape, number), np.arange(800) % 4)
    elif group == "first":
        yield from (_first(seed) for seed in range(1, 6 if quick else 21))
    for name in tables if group not in ("shape", "first") else ():
        X, site = cells.load(name)
        base = X if group in ("errors", "order") else cells.without_errors(X, SEED)
        if group == "null":
            yield Problem.clean(group, name, base, site)
        for way in WAYS if group != "null" else ():
            yield Problem(group, f"{name} {way}", *_spoiled(cells, base, site, way))


def _spoiled(cells: Any, X: FloatArray, site: NDArray[np.int_], way: str) -> tuple[Any, ...]:
    Y, wrong, ignore = cells.spoil(X, site, way, RATE, SEED)
    return Y, site, wrong, ignore


def _shaped(shape: str, seed: int) -> FloatArray:
    """800 × 20: a rank-2 part with noise of this kind, skewed kinds as the values themselves; discrete ones apart."""
    rng = np.random.default_rng(100 + seed)
    L, size = rng.normal(size=(800, 2)) @ rng.normal(size=(2, 20)), (800, 20)
    uniform = norm.cdf((L + rng.normal(size=size)) / np.sqrt(1.0 + (L**2).mean(axis=0)))
    drawn: dict[str, Callable[[], Any]] = {
        "gaussian": lambda: L + rng.normal(size=size),
        "t3": lambda: L + rng.standard_t(3, size=size),
        "t5": lambda: L + rng.standard_t(5, size=size),
        "laplace": lambda: L + rng.laplace(size=size),
        "exponential": lambda: -np.log1p(-uniform * (1.0 - 1e-12)),
        "chi2": lambda: rng.chisquare(2, size=size) + L**2,
        "lognormal": lambda: np.exp(norm.ppf(np.clip(uniform, 1e-12, 1.0 - 1e-12))),
        "poisson": lambda: rng.poisson(0.3, size=size),
        "binary": lambda: (rng.random(size=size) < 0.05).astype(np.float64),
        "offset": lambda: 1e6 + L + rng.normal(size=size),
    }
    return np.asarray(drawn[shape](), dtype=np.float64)


def _first(seed: int) -> Problem:
    """docs/first-data-set.md, with this seed."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(2, 8)) * [3, 20, 15, 8, 30, 2, 11, 5]
    level, counts = np.array([50, 130, 240, 140, 95, 25, 70, 36]), (90, 70, 80, 60)
    tables, wrong = [], []
    for count in counts:
        values = level + rng.normal(size=(count, 2)) @ weights + rng.normal(size=(count, 8))
        values[17, 2] += 300
        values[3, 1] = np.nan
        tables.append(np.round(values, 1))
        wrong.append(np.zeros(values.shape, bool))
        wrong[-1][17, 2] = True
    site = np.repeat(np.arange(4), counts)
    return Problem(
        "first", f"seed {seed}", np.concatenate(tables), site, np.concatenate(wrong), np.zeros((300, 8), bool)
    )


def measure(problem: Problem, cells: Any, scaling: str) -> dict[str, object]:
    """Run the problem as a federation, and judge its flags and what it says of them."""
    began = time.process_time()
    spec = parse_spec({"rows": problem.X.shape[1], "scaling": scaling})
    sites = [np.flatnonzero(problem.site == number) for number in range(problem.site.max() + 1)]
    try:
        run = simulate(method_of(spec), [ArrayColumns(problem.X[rows].T) for rows in sites])
    except np.linalg.LinAlgError as error:
        return {"group": problem.group, "name": problem.name, "crash": str(error)}
    if problem.group == "order":
        orders = sizes_of(run, problem.X, scaling), forest_order(problem.X)
        own, forest = (best_f1(order, problem.wrong, problem.ignore) for order in orders)
        return {"group": problem.group, "name": problem.name, "own": own, "forest": forest}
    flags = np.zeros(problem.X.shape, bool)
    for rows, result in zip(sites, run.results, strict=True):
        flags[rows] = (result.S.toarray() != 0.0).T
    hits = int((flags & problem.wrong).sum())
    verdict = method_of(spec).verdict(run.consensus)
    return {
        "group": problem.group, "name": problem.name, **cells.judge(flags, problem.wrong, problem.ignore),
        "flags": int((flags & ~problem.ignore).sum()), "hits": hits, "wrong": int(problem.wrong.sum()),
        **stated_ordinary(run, scaling),
        "rank": run.consensus.progress.rank, "rounds": run.consensus.round,
        "sentence": verdict.sentence if verdict else "", "seconds": time.process_time() - began,
    }  # fmt: skip


def stated_ordinary(run: Simulation, scaling: str) -> dict[str, float]:
    """How many of the flagged entries the run says are ordinary, and at most; nothing where it did not check itself."""
    broadcast = run.consensus.broadcast
    if scaling == "robust":
        broadcast, _, _ = split_broadcast(broadcast, broadcast.tensor.shape[0])
    plan = ClosingPlan.of(broadcast)
    if plan.calibration is None or plan.calibration.ordinary < 0.0:
        return {}
    return {name: float(plan.verdict[VERDICT.index(name)]) for name in ("ordinary", "ordinary_most")}


def summary(group: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    """The figures that a group is judged by; runs that crash count as all flagged."""
    crashed = [row for row in rows if "crash" in row]
    done = [row for row in rows if "crash" not in row]
    found: dict[str, float] = {"runs": len(rows), "crashed": len(crashed)}
    if not done:
        return found
    if group == "order":
        pairs = np.array([(row["own"], row["forest"]) for row in done])
        ahead = pairs[:, 0] - pairs[:, 1]
        wins = {"wins": float((ahead > 0.0).sum()), "losses": float((ahead < 0.0).sum())}
        return found | wins | {"own": float(pairs[:, 0].mean()), "forest": float(pairs[:, 1].mean())}
    found["rounds_most"] = max(row["rounds"] for row in done)
    flags, hits = sum(row["flags"] for row in done), sum(row["hits"] for row in done)
    if group in ("null", "shape"):
        for key in ("flagged", "samples"):
            shares = [row[key] for row in done]
            found |= {f"{key}_mean": float(np.mean(shares)), f"{key}_worst": max(shares)}
    else:
        found |= {key: float(np.mean([row[key] for row in done])) for key in ("f1", "precision", "recall")}
        found["false_among_flags"] = 1.0 - hits / max(flags, 1)
        found["found_of_wrong"] = hits / max(sum(row["wrong"] for row in done), 1)
    if group == "stated":
        checked = [row for row in done if "ordinary" in row]
        lines, true = sum(row["flags"] for row in checked), [row["flags"] - row["hits"] for row in checked]
        said, most = (np.array([row[name] for row in checked]) for name in ("ordinary", "ordinary_most"))
        found |= {"ordinary_stated": float(said.sum()) / lines, "ordinary_true": float(np.sum(true)) / lines}
        found |= {"checked": float(len(checked)), "within_interval": float(np.mean(np.array(true) <= most))}
    return found


def best_f1(order: FloatArray, wrong: NDArray[np.bool_], ignore: NDArray[np.bool_]) -> float:
    """The F1 of the best cut, the largest values first."""
    hits = np.cumsum(wrong[~ignore][np.argsort(-order[~ignore], kind="stable")])
    return float((2.0 * hits / (np.arange(1, hits.size + 1) + max(int(hits[-1]), 1))).max())


def sizes_of(run: Simulation, X: FloatArray, scaling: str) -> FloatArray:
    """|z| of every entry (samples × features) under the run's own model; 0 where unobserved."""
    broadcast, centre, scale = run.consensus.broadcast, np.zeros(X.shape[1]), np.ones(X.shape[1])
    if scaling == "robust":
        broadcast, centre, scale = split_broadcast(broadcast, X.shape[1])
    found = transform_columns(ClosingPlan.of(broadcast), ((X - centre) / scale).T).scored
    return np.asarray(np.nan_to_num(np.abs(found.z.T)))


def forest_order(X: FloatArray) -> FloatArray:
    """How isolated entries are among the residuals of their feature, regressed on all others by ridge."""
    filled = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
    spread = 1.4826 * np.median(np.abs(filled - np.median(filled, axis=0)), axis=0)
    unit = (filled - np.median(filled, axis=0)) / np.where(spread > 0.0, spread, np.maximum(filled.std(axis=0), 1e-300))
    order = np.empty_like(unit)
    for k in range(unit.shape[1]):
        others = np.delete(unit, k, axis=1)
        gap = unit[:, k] - Ridge(alpha=1.0).fit(others, unit[:, k]).predict(others)
        forest = IsolationForest(n_estimators=100, random_state=0).fit(gap[:, None])
        order[:, k] = -forest.score_samples(gap[:, None])
    return np.where(np.isnan(X), 0.0, order)


def goals(found: dict[str, dict[str, float]]) -> Iterator[tuple[str, str, str]]:
    """What is to be reached, and what was: a line each for the groups that were run."""
    if "null" in found:
        null = found["null"]
        both = f"{100 * null['flagged_mean']:.3f} / {100 * null['flagged_worst']:.2f} %"
        yield "tables without errors: entries flagged, mean / worst", "≤ .05 / .2 %", both
        yield "… samples with a flag, worst", "≤ 1.5 %", f"{100 * null['samples_worst']:.1f} %"
    if "shape" in found:
        yield "made-up shapes: entries flagged, worst", "≤ .2 %", f"{100 * found['shape']['flagged_worst']:.3f} %"
    if "first" in found:
        first = found["first"]
        told = f"{100 * first['false_among_flags']:.1f} %, {100 * first['found_of_wrong']:.0f} % found"
        yield "first data set: false among the flags, errors found", "≤ 3 %, all", told
    if "errors" in found:
        errors = found["errors"]
        yield "3 % errors: F1 / precision", "≥ .80 / .90", f"{errors['f1']:.3f} / {errors['precision']:.3f}"
    if "stated" in found:
        stated = found["stated"]
        both = f"{stated['ordinary_stated']:.3f} / {stated['ordinary_true']:.3f}"
        yield "ordinary share of all lines, stated / true", "factor 1.5", both
        yield "… lists whose true number is within what is stated", "95 %", f"{100 * stated['within_interval']:.0f} %"
    if "order" in found:
        order = found["order"]
        told = f"{order['wins']:.0f}–{order['losses']:.0f} ({order['own']:.3f} against {order['forest']:.3f})"
        yield "order of entries against isolation forests, best F1", "ahead", told
    if rounds := [group["rounds_most"] for group in found.values() if "rounds_most" in group]:
        yield "rounds, most", "≤ 40", f"{max(rounds):.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", default=",".join(GROUPS), help="groups to run")
    parser.add_argument("--tables", default="", help="tables to run; without, all")
    parser.add_argument("--scaling", default="robust")
    parser.add_argument("--quick", action="store_true", help="four tables, and five seeds of the first data set")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    cells, tables = tool_beside(wanted.data, "cells"), chosen_tables(wanted.data, wanted.tables)
    if wanted.quick and not wanted.tables:
        tables = QUICK
    record: dict[str, Any] = {"rows": [], "summary": {}}
    with threadpool_limits(1):
        for group in wanted.only.split(","):
            rows = []
            for problem in problems(cells, group, tables, wanted.quick):
                rows.append(measure(problem, cells, wanted.scaling))
                print(_line(rows[-1]), flush=True)
            record["rows"] += rows
            record["summary"][group] = summary(group, rows)
    for group, figures in record["summary"].items():
        print(f"{group:>7}  " + "  ".join(f"{key} {value:.4g}" for key, value in figures.items()))
    for what, asked, reached in goals(record["summary"]):
        print(f"{what:<55} {asked:<14} {reached}")
    if wanted.json is not None:
        wanted.json.write_text(json.dumps(record, indent=1) + "\n")


def _line(row: dict[str, Any]) -> str:
    if "crash" in row:
        return f"{row['group']:>7}  {row['name']:<22}  crashed: {row['crash']}"
    if row["group"] == "order":
        return f"  order  {row['name']:<22}  own {row['own']:.4g}  forest {row['forest']:.4g}"
    keys = ("f1", "precision", "recall", "flagged", "samples", "rank", "rounds", "seconds")
    return f"{row['group']:>7}  {row['name']:<22}  " + "  ".join(f"{key} {row[key]:.4g}" for key in keys)


if __name__ == "__main__":
    main()
