"""Stories of flagged entries: errors of seven kinds put into real tables, and what is said of those that are flagged.

    python -m benchmarks.causes --data DIR [--sets wine,boston] [--seed 1] [--json FILE]

DIR holds `tables/*.npz` (`X`, samples in rows, and the `site` of each). Over all tables 200 errors of each kind are put
in, kind by kind in runs of their own, so that at most a few in a hundred entries are wrong. `named`: of the flagged
ones, how many get a story. `right`: of those, how many get the kind that was put in. `value`: of those that say what
was meant, how many are within 2 % of it or a tenth of the feature's spread. The line `untouched` is of flagged entries
into which nothing was put: what is said of them may be true, and nobody knows.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from numpy.random import Generator
from threadpoolctl import threadpool_limits

from benchmarks.real_tables import chosen_tables, method_for
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.own_view.slips import UNITS
from dcfpca.rpca.round_limits import automatic_bound
from dcfpca.rpca.simulate import simulate
from participant.findings import causes
from participant.findings.causes import KINDS, SWAPPED, Flagged, explain
from participant.findings.written_numbers import transposed
from participant.results.scoring_model import scoring_model

ERRORS = 200
Truth = dict[tuple[int, int], tuple[str, float]]


def table(path: Path) -> list[FloatArray]:
    """The sites' matrices, features in rows, with the decimals that the table was printed with."""
    with np.load(path, allow_pickle=False) as kept:
        X, site = kept["X"], kept["site"]
    whole = np.array([[float(str(value)) for value in row] for row in X]).T
    return [whole[:, site == one] for one in np.unique(site)]


def wrong(kind: str, M: FloatArray, row: int, column: int, random: Generator) -> dict[tuple[int, int], float]:
    """The entries that an error of this kind changes; none where it would change nothing."""
    x, at = float(M[row, column]), (row, column)
    match kind:
        case causes.DECIMAL:
            made = {at: float(f"{x * random.choice([10.0, 0.1, 100.0]):.10g}")}
        case causes.UNIT:
            factor, offset = random.choice(np.array(list(UNITS.values())))
            made = {at: float(f"{factor * x + offset:.4g}")}
        case causes.SIGN:
            made = {at: -x}
        case causes.SWAPPED:
            other = int(random.integers(len(M)))
            made = {at: float(M[other, column]), (other, column): x}
        case causes.CODE:
            made = {at: float(random.choice([9999.0, 999.0, -1.0, -99.0, 0.0]))}
        case causes.COPIED:
            made = {at: float(M[row, column - 1])} if column else {}
        case _:
            texts = list(transposed(x))
            made = {at: float(random.choice(texts))} if texts else {}
    return {place: value for place, value in made.items() if not np.isnan(value) and value != M[place]}


def put_in(sites: list[FloatArray], kind: str, count: int, random: Generator) -> tuple[list[FloatArray], list[Truth]]:
    changed, truth = [own.copy() for own in sites], [Truth() for _ in sites]
    shares = np.array([own.shape[1] for own in sites], dtype=float)
    for _ in range(100 * count):
        if sum(map(len, truth)) >= count * (1 + (kind == SWAPPED)):
            break
        site = int(random.choice(len(sites), p=shares / shares.sum()))
        M = changed[site]
        row, column = int(random.integers(M.shape[0])), int(random.integers(M.shape[1]))
        taken = {k for _, place in truth[site] for k in (place - 1, place, place + 1)}
        if column in taken or np.isnan(M[row, column]):
            continue
        for place, value in wrong(kind, M, row, column, random).items():
            truth[site][place] = (kind, float(M[place]))
            M[place] = value
    return changed, truth


def said_of(sites: list[FloatArray], truth: list[Truth]) -> tuple[list[tuple[str, str, bool | None]], int]:
    """(kind put in or "", kind said or "", whether the value is right) of every flagged entry; how many put in."""
    rows = sites[0].shape[0]
    run = simulate(method_for(rows, None, automatic_bound(rows), "none"), [ArrayColumns(own) for own in sites])
    judge = scoring_model(run.consensus.broadcast, run.consensus.stage, scaled=False)
    assert judge is not None
    names = [str(row) for row in range(rows)]
    spread = np.nanstd(np.concatenate(sites, axis=1), axis=1)
    found: list[tuple[str, str, bool | None]] = []
    for M, put in zip(sites, truth, strict=True):
        scored = judge.transform(M).scored
        flagged = [
            Flagged(int(row), int(column), scored.others.value[row, column], scored.z[row, column])
            for column, row in zip(*np.nonzero(scored.flagged.T), strict=True)
        ]
        told = explain(ArrayColumns(M), lambda some: judge.transform(some).scored.z, judge.deviation, names, flagged)
        for one, cause in zip(flagged, told, strict=True):
            kind, meant = put.get((one.row, one.column), ("", np.nan))
            away = None if cause is None or np.isnan(cause.corrected) else abs(cause.corrected - meant)
            near = None if away is None else bool(away <= max(0.02 * abs(meant), 0.1 * spread[one.row]))
            found.append((kind, cause.kind if cause else "", near))
    return found, sum(map(len, truth))


def measure(paths: list[Path], seed: int) -> dict[str, dict[str, float]]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for number, path in enumerate(paths):
        for kind in KINDS:
            random = np.random.default_rng([seed, number, KINDS.index(kind)])
            share = ERRORS // len(paths) + (number < ERRORS % len(paths))
            found, put = said_of(*put_in(table(path), kind, share, random))
            counts[kind]["put in"] += put
            for true, said, near in found:
                one = counts[true or "untouched"]
                one["flagged"] += 1
                one["named"] += bool(said)
                one["right"] += said == true != ""
                one["valued"] += bool(true) and near is not None
                one["value"] += bool(true) and near is True
    return {kind: dict(one) for kind, one in counts.items()}


def show(counts: dict[str, dict[str, float]]) -> None:
    print("| kind | put in | flagged | named | right | value |\n|---|---|---|---|---|---|")
    whole = Counter[str]()
    for kind, one in counts.items():
        whole.update(one if kind != "untouched" else {})
        _line(kind, one)
    _line("all", whole)


def _line(kind: str, one: dict[str, float] | Counter[str]) -> None:
    pairs = [("named", "flagged")] + ([] if kind == "untouched" else [("right", "named"), ("value", "valued")])
    shares = [f"{100 * one.get(a, 0) / one[b]:.0f} %" if one.get(b) else "–" for a, b in pairs]
    print("| " + " | ".join([kind, str(one.get("put in", "")), str(one.get("flagged", 0)), *shares]) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default="", help="names of tables; all of DIR without")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    paths = [wanted.data / "tables" / f"{name}.npz" for name in chosen_tables(wanted.data, wanted.sets)]
    if not paths:
        parser.error(f"there is no table below {wanted.data / 'tables'}")
    with threadpool_limits(1):
        counts = measure(paths, wanted.seed)
    show(counts)
    if wanted.json is not None:
        wanted.json.write_text(json.dumps(counts, indent=1) + "\n")


if __name__ == "__main__":
    main()
