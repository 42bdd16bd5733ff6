"""What a round costs as the problem grows: in columns n_i, rows m, rank r at a site, and in participants E.

    python -m benchmarks.cost_growth --json growth.json --figures docs/figures
    python -m benchmarks.cost_growth --json growth.json --no-site --federation 8 64 512  # real aggregator; minutes

What is in the JSON file already and is not measured again stays there.
Site figures are CPU seconds of the local step on one thread, the median of a few rounds, with the exponent of the power
law fitted to them (1: linear). Bytes per participant and round are those of the protocol's own messages, encoded. The
federation's figures (seconds per round, the aggregator's memory) come from `benchmarks.many_participants`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Total
from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.secagg.keys import KEY_BYTES
from dcfpca.secagg.neighbours import degree_for
from dcfpca.secagg.set_up import SEALED_BYTES
from dcfpca.spec import parse_spec
from dcfpca.v1 import rounds_pb2 as pb

BASE = {"rows": 500, "columns": 4000, "rank": 10}
SERIES = {
    "columns": [1000, 2000, 4000, 8000, 16000],
    "rows": [125, 250, 500, 1000, 2000],
    "rank": [5, 10, 20, 40, 80],
}
COHORTS = [3, 8, 16, 32, 64, 65, 128, 256, 512, 1000]
ROUNDS = 5
CERTIFICATE = 600
"""Bytes of a site's certificate, about."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default="", help="write the document here too")
    parser.add_argument("--federation", type=int, nargs="*", default=[], metavar="E", help="cohorts of real processes")
    parser.add_argument("--no-site", action="store_true", help="leave the site's figures as they are")
    parser.add_argument("--shrink", type=int, default=1, help="divide the site's sizes by this, ranks too")
    parser.add_argument("--figures", default="", metavar="DIR", help="draw them, as SVG and PNG (extra `bench`)")
    options = parser.parse_args()
    threadpool_limits(limits=1)
    kept = Path(options.json) if options.json else None
    report: dict[str, Any] = json.loads(kept.read_text()) if kept and kept.exists() else {}
    if not options.no_site:
        report |= {"base": BASE, "site": {key: site_series(key, options.shrink) for key in SERIES}}
    report["bytes_per_participant"] = [bytes_of(cohort) for cohort in COHORTS]
    known = {point["participants"]: point for point in report.get("federation", [])}
    known |= {cohort: federation(cohort) for cohort in options.federation}
    report["federation"] = [known[cohort] for cohort in sorted(known)]
    text = json.dumps(report, indent=2)
    if kept:
        kept.write_text(text + "\n")
    if options.figures:
        draw(report, Path(options.figures))
    print(text)


def site_series(key: str, shrink: int) -> dict[str, Any]:
    cases = [BASE | {key: value} for value in SERIES[key]]
    points = [site_cost(**{size: max(1, value // shrink) for size, value in one.items()}) for one in cases]
    sizes, seconds = np.log([point[key] for point in points]), np.log([point["cpu_seconds"] for point in points])
    return {"points": points, "exponent": float(np.polyfit(sizes, seconds, 1)[0])}


def site_cost(rows: int, columns: int, rank: int) -> dict[str, Any]:
    """CPU seconds per round of one site, and the state it carries, in bytes."""
    problem = generate(Recipe(rows=rows, columns=columns, rank=rank, counts=(columns,)), 0)
    spec = parse_spec({"rows": rows, "rank": rank, "rounds": ROUNDS, "tolerance": 0})
    method = method_of(spec)
    site, consensus, spent = method.site(ArrayColumns(problem.sites()[0].array)), method.begin(), []
    while consensus.outcome is None:
        started = time.process_time()
        update = site.answer(consensus)
        spent.append(time.process_time() - started)
        consensus = method.advance(consensus, Total(update, 1))
    state = sum(array.nbytes for array in site.snapshot().values())
    cost = {"cpu_seconds": median(spent[2:]), "opening_cpu_seconds": spent[0], "state_bytes": state}
    return {"rows": rows, "columns": columns, "rank": rank, **cost}


def bytes_of(cohort: int, rows: int = 1000, rank: int = 20) -> dict[str, Any]:
    """What one participant sends in a secure run: the messages of its set-up, once, and its update in each round."""
    key, name, signature = bytes(KEY_BYTES), "site-0001.example.org", bytes(72)
    layout = method_of(parse_spec({"rows": rows, "rank": rank})).stages[1].up
    run_key = pb.RunKey(
        participant=name, key=key, commitment=key, binding=key, certificate=bytes(CERTIFICATE), signature=signature
    )
    sealed = pb.SealedGroupShare(sender=name, recipient=name, ciphertext=bytes(SEALED_BYTES), signature=signature)
    set_up = (
        pb.AdvertiseRunKeyRequest(key=run_key).ByteSize()
        + pb.ShareGroupSecretRequest(shares=[sealed] * (cohort - 1)).ByteSize()
    )
    return {
        "participants": cohort,
        "neighbours": degree_for(cohort),
        "set_up": set_up,
        "update": layout.size * 8,
    }


def federation(cohort: int) -> dict[str, Any]:
    """A cohort of light clients against the real aggregator."""
    from benchmarks.many_participants import measure  # noqa: PLC0415  needs the tests' support, which a checkout has

    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), cohort, rounds=3, rows=1000, rank=10, processes=2)
    return asdict(figures) | {"beyond_connections_kib": figures.beyond_connections_kib}


def draw(report: dict[str, Any], folder: Path) -> None:
    """growth-site, growth-bytes and growth-aggregator, each as SVG and PNG."""
    import matplotlib  # noqa: PLC0415  the extra `bench`

    matplotlib.use("svg")
    from matplotlib import pyplot  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    matplotlib.rcParams["svg.hashsalt"] = "growth"
    charts = {"site": draw_site, "bytes": draw_bytes, "aggregator": draw_aggregator}
    for name, chart in charts.items():
        if name == "aggregator" and not report["federation"]:
            continue
        figure = chart(pyplot, report)
        for ending in ("svg", "png"):
            metadata = {"Date": None} if ending == "svg" else {}
            figure.savefig(folder / f"growth-{name}.{ending}", bbox_inches="tight", dpi=110, metadata=metadata)
        pyplot.close(figure)


def draw_site(pyplot: Any, report: dict[str, Any]) -> Any:
    figure, panels = pyplot.subplots(1, 3, figsize=(10, 3), sharey=True)
    words = {"columns": "columns $n_i$", "rows": "rows $m$", "rank": "rank $r$"}
    for panel, (key, series) in zip(panels, report["site"].items(), strict=True):
        sizes = np.array([point[key] for point in series["points"]], dtype=float)
        seconds = np.array([point["cpu_seconds"] for point in series["points"]])
        panel.loglog(sizes, seconds, "o-", label=f"measured, exponent {series['exponent']:.2f}")
        panel.loglog(sizes, seconds[-1] * sizes / sizes[-1], ":", color="gray", label="linear")
        panel.set_xlabel(words[key])
        mark(panel, sizes)
        panel.legend(fontsize=7)
    panels[0].set_ylabel("CPU seconds per round")
    return figure


def draw_bytes(pyplot: Any, report: dict[str, Any]) -> Any:
    figure, panel = pyplot.subplots(figsize=(5, 3))
    points = report["bytes_per_participant"]
    cohorts = [point["participants"] for point in points]
    for key in ("set_up", "update"):
        panel.loglog(cohorts, [point[key] / 1024 for point in points], "o-", markersize=3, label=key)
    panel.axvline(64, color="gray", linestyle=":")
    panel.set_xlabel("participants $E$ (m = 1000, r = 20; neighbour graph beyond 64)")
    panel.set_ylabel("KiB sent: update of a round, set-up of a run")
    mark(panel, [3, 8, 16, 32, 64, 128, 256, 512, 1000])
    panel.legend(fontsize=7)
    return figure


def draw_aggregator(pyplot: Any, report: dict[str, Any]) -> Any:
    figure, (memory, seconds) = pyplot.subplots(1, 2, figsize=(9, 3))
    points = report["federation"]
    cohorts = [point["participants"] for point in points]
    memory.semilogx(cohorts, [point["beyond_connections_kib"] / 1024 for point in points], "o-")
    memory.set_ylim(bottom=0)
    memory.set_ylabel("MiB beyond the connections")
    seconds.loglog(cohorts, [point["seconds_per_round"] for point in points], "o-")
    seconds.set_ylabel("seconds per round, all on two cores")
    for panel in (memory, seconds):
        panel.set_xlabel("participants $E$")
        mark(panel, cohorts)
    figure.tight_layout()
    return figure


def mark(panel: Any, sizes: Any) -> None:
    """Name the sizes that were measured along a logarithmic axis, and nothing between."""
    panel.set_xticks(sizes, [f"{size:.0f}" for size in sizes], fontsize=7)
    panel.minorticks_off()


if __name__ == "__main__":
    main()
