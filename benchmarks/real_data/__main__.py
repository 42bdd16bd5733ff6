"""Real data: moving cars on a motorway and the metrics of twelve servers.

    python -m benchmarks.real_data --data DIR [--network] [--json FILE] [--figures DIR] [--pictures DIR]

DIR holds `highway/highway_60x80.npz` (CDnet 2014, changedetection.net: the sequence "highway" at 60 × 80, 600 frames;
arrays `frames` and `gt`) and `asd/omi-1.npz` … `omi-12.npz` (Application Server Dataset of InterFusion, MIT licence;
arrays `X`, 19 metrics × 4320 steps, and `y`). Neither is part of this project. `--network` also sends both through a
real federation. `--figures` is for curves; `--pictures` for frames of the film, which are not ours to publish.
Every run has the defaults of a spec that says only the rank.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.baselines import alm
from benchmarks.real_data.datasets import Dataset, asd, highway
from benchmarks.real_data.detection_scores import area_under_curve, average_precision, best_f1
from benchmarks.real_data.federation import over_network
from benchmarks.real_data.pictures import draw_curves, draw_frames, draw_sites
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.simulate import Simulation, simulate


@dataclass(frozen=True, slots=True)
class Verdict:
    """How well the scores of one low-rank part tell the labelled from the rest."""

    who: str
    best_f1: float
    roc_area: float
    average_precision: float
    rounds: int | None = None
    outcome: str | None = None
    seconds: float | None = None


def judge(dataset: Dataset, who: str, L: FloatArray, run: Simulation | None = None, seconds: float = 0.0) -> Verdict:
    scores, labels = dataset.scores(L)[dataset.judged], dataset.labels[dataset.judged]
    figures = (best_f1(scores, labels), area_under_curve(scores, labels), average_precision(scores, labels))
    if run is None or run.consensus.outcome is None:
        return Verdict(who, *figures)
    return Verdict(who, *figures, run.consensus.round, run.consensus.outcome.name.lower(), seconds)


def solutions(dataset: Dataset) -> Iterator[tuple[str, FloatArray, Simulation | None, float]]:
    """Ours three ways, then what one would do without us with all the data in one place."""
    method, M = method_of(dataset.spec()), dataset.pooled
    ways = {"federated": dataset.sites, "pooled": (M,)}
    for who, sites in ways.items():
        began = time.process_time()
        run = simulate(method, [ArrayColumns(own) for own in sites])
        yield who, run.low_rank, run, time.process_time() - began
    alone = [simulate(method, [ArrayColumns(own)]).low_rank for own in dataset.sites]
    yield "each site alone", np.concatenate(alone, axis=1), None, 0.0
    yield "principal component pursuit (ALM), pooled", alm(M).L, None, 0.0
    P, values, Q = np.linalg.svd(M, full_matrices=False)
    yield "plain PCA, pooled", (P[:, : dataset.rank] * values[: dataset.rank]) @ Q[: dataset.rank], None, 0.0
    if not dataset.by_column:
        yield "median over time, pooled", np.broadcast_to(np.median(M, axis=1, keepdims=True), M.shape), None, 0.0


def by_site(dataset: Dataset, found: dict[str, FloatArray]) -> list[dict[str, float | int]]:
    """The area under each site's own curve, from the federation's subspace and from its own alone."""
    ends = np.cumsum([own.shape[1] for own in dataset.sites])
    rows: list[dict[str, float | int]] = []
    for number, (end, own) in enumerate(zip(ends, dataset.sites, strict=True), start=1):
        here = np.s_[..., end - own.shape[1] : end]
        row: dict[str, float | int] = {"site": number}
        for who in ("federated", "each site alone"):
            scores = dataset.scores(found[who])[here][dataset.judged[here]]
            row[who] = area_under_curve(scores, dataset.labels[here][dataset.judged[here]])
        rows.append(row)
    return rows


def disagreement(dataset: Dataset, one: FloatArray, other: FloatArray) -> float:
    """The largest difference of a score."""
    return float(np.abs(dataset.scores(one) - dataset.scores(other)).max())


def measure(dataset: Dataset, wanted: argparse.Namespace) -> dict[str, object]:
    found: dict[str, FloatArray] = {}
    verdicts: list[Verdict] = []
    for who, L, run, seconds in solutions(dataset):
        found[who] = L
        verdicts.append(judge(dataset, who, L, run, seconds))
        print(f"{dataset.name:>8}  {verdicts[-1].best_f1:.4f}  {verdicts[-1].roc_area:.4f}  {who}", flush=True)
    shape = [dataset.pooled.shape[0], *(own.shape[1] for own in dataset.sites)]
    row: dict[str, object] = {"rows_and_columns": shape, "rank": dataset.rank}
    row["verdicts"] = [asdict(verdict) for verdict in verdicts]
    row["roc_area_by_site"] = by_site(dataset, found)
    row["federated_against_pooled"] = disagreement(dataset, found["federated"], found["pooled"])
    if wanted.network:
        networked = over_network(dataset.spec(), dataset.sites)
        row["network"] = {
            "secure_sum_against_simulation": disagreement(dataset, networked.L, found["federated"]),
            "rounds": networked.rounds, "seconds": networked.seconds,
            "bytes_per_site_round": networked.bytes_per_site_round,
        }  # fmt: skip
    if wanted.figures:
        picked = {who: dataset.scores(L)[dataset.judged] for who, L in found.items()}
        draw_curves(picked, dataset.labels[dataset.judged], wanted.figures / f"real-{dataset.name}")
        draw_sites(row["roc_area_by_site"], wanted.figures / f"real-{dataset.name}-sites")
    if wanted.pictures and dataset.name == "highway":
        draw_frames(dataset.pooled, found["federated"], dataset.labels, wanted.pictures / "highway")
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--network", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--pictures", type=Path)
    wanted = parser.parse_args()
    with threadpool_limits(1):
        found = {dataset.name: measure(dataset, wanted) for dataset in (highway(wanted.data), asd(wanted.data))}
    if wanted.json:
        wanted.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
