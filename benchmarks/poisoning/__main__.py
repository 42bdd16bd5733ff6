"""What sites that lie do to the others' flags, and who is told; and whether honest federations are left in peace.

    python -m benchmarks.poisoning [--attacks NAME,…] [--cohorts 1of4,1of10,3of10] [--seeds 0,1,2] [--honest 7]
                                   [--json FILE]

Every run is simulated with the defaults of a spec. The figures are of the honest sites alone: F1 of their flags, recall
of a pattern that some of their columns have, both also as they are without the liars, the share of healthy entries that
are flagged, how many sites find that the shared model fails them, and how many liars are told that their features
differ. A run that `conserved`
ends is told to everybody, and has no figures. `--honest` is how many seeds of each kind of honest federation are run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.poisoning.attacks import ATTACKS, Attack, LyingSite, Situation
from benchmarks.poisoning.world import FEATURES, KINDS, Site, World
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus, FloatArray
from dcfpca.rpca.own_view.carriers import FAILS
from dcfpca.rpca.own_view.site_shift import Profile, shift_notes
from dcfpca.rpca.refinement.closing_plan import ClosingPlan
from dcfpca.rpca.simulate import collect, exchange
from dcfpca.rpca.stage_list import Method, StagedSite
from dcfpca.spec import parse_spec

TOLD = 90  # characters of a sentence in the table


def honest_federation(kind: str, sites: int, seed: int) -> dict[str, Any]:
    """A federation in which nobody lies."""
    rng = np.random.default_rng([seed, 1])
    world = World.drawn(rng)
    own = [world.site(rng, kind) for _ in range(sites)]
    return {"attack": f"none: {kind}", "cohort": f"0of{sites}", "seed": seed, **measured(own, [], None)}


def attacked(attack: Attack, liars: int, sites: int, seed: int) -> dict[str, Any]:
    """A federation of which the last sites lie."""
    rng = np.random.default_rng([seed, 1])
    world = World.drawn(rng)
    own, situation = [world.site(rng) for _ in range(sites - liars)], Situation(world, sites - liars, liars)
    lies = [attack.data(world, rng) for _ in range(liars)]
    before = without_liars(sites - liars, seed)
    row = {"attack": attack.name, "cohort": f"{liars}of{sites}", "seed": seed, **before}
    return row | measured(own, lies, (attack, situation))


@cache
def without_liars(sites: int, seed: int) -> dict[str, Any]:
    """What the honest sites of such a federation find without the others."""
    rng = np.random.default_rng([seed, 1])
    world = World.drawn(rng)
    found = measured([world.site(rng) for _ in range(sites)], [], None)
    return {f"{name}_before": found[name] for name in ("f1", "pattern")}


def measured(honest: list[Site], lies: list[Any], by: tuple[Attack, Situation] | None) -> dict[str, Any]:
    """Run it, and judge the honest sites' flags."""
    method = method_of(parse_spec({"rows": FEATURES}))
    own = [method.site(ArrayColumns(site.M)) for site in honest]
    disobedient = replace(method, max_share=1.0)
    liars = [LyingSite(disobedient.site(ArrayColumns(M)), *by) for M in lies] if by else []
    consensus, broken = held(method, [*own, *liars])
    if broken:
        return {"ended": broken}
    results = [collect(site, consensus) for site in own]
    flags = [result.S.toarray() != 0.0 for result in results]
    flag, wrong, pattern = (
        np.concatenate([part.ravel() for part in parts])
        for parts in (flags, [site.wrong for site in honest], [site.pattern for site in honest])
    )
    verdict = method.verdict(consensus)
    hits = int((flag & wrong).sum())
    return {
        "f1": 2.0 * hits / max(int(flag.sum()) + int(wrong.sum()), 1),
        "pattern": float((flag & pattern).sum() / max(int(pattern.sum()), 1)),
        "healthy": float((flag & ~wrong).sum() / (~wrong).sum()),
        "rank": consensus.progress.rank, "published": method.model(consensus)["U"].shape[1],
        "rounds": consensus.round,
        "alarms": sum(result.certificate.get("error_ratio", 0.0) > FAILS for result in results),
        "ratio": max(result.certificate.get("error_ratio", 0.0) for result in results),
        "liars_told": sum(bool(differing(consensus, M)) for M in lies),
        "sound": bool(verdict and verdict.sound), "sentence": verdict.sentence if verdict else "",
    }  # fmt: skip


def differing(consensus: Consensus, M: FloatArray) -> tuple[str, ...]:
    """What a site with these columns is told of its features."""
    plan = ClosingPlan.of(consensus.broadcast)
    return shift_notes(Profile(plan.median, plan.spread, plan.one_value, np.zeros(len(M))), M)


def held(method: Method, sites: list[StagedSite | LyingSite]) -> tuple[Consensus, str]:
    """The last consensus, and the law that a sum broke, which ends a run."""
    consensus = method.begin()
    while consensus.outcome is None:
        total = exchange(method, consensus, sites)  # type: ignore[arg-type]  # a liar has no result
        if broken := method.conserved(consensus, total):
            return consensus, broken
        consensus = method.advance(consensus, total)
    return consensus, ""


def rows_of(wanted: argparse.Namespace) -> Iterator[list[dict[str, Any]]]:
    """The runs of each line of the table."""
    seeds = [int(seed) for seed in wanted.seeds.split(",")]
    for kind in KINDS if wanted.honest else KINDS[:1]:
        yield [honest_federation(kind, 10, seed) for seed in range(max(wanted.honest, 1))]
    for name in filter(None, wanted.attacks.split(",")):
        for cohort in wanted.cohorts.split(","):
            liars, sites = (int(number) for number in cohort.split("of"))
            yield [attacked(ATTACKS[name], liars, sites, seed) for seed in seeds]


def line(rows: list[dict[str, Any]]) -> str:
    """A line of the table: the worst run of each figure, and what is said in the first."""
    done = [row for row in rows if "ended" not in row]
    ended = next((row["ended"] for row in rows if "ended" in row), "")
    figures = [""] * 6
    if done:
        figures = [_worst(done, "f1"), _worst(done, "pattern"), f"{100 * max(row['healthy'] for row in done):.2f} %"]
        figures.append(", ".join(map(str, sorted({row["published"] for row in done}))))
        figures += [_range(done, "alarms"), _range(done, "liars_told")]
    sound = f"{sum(row['sound'] for row in done)} of {len(rows)}"
    said = f"ended: {ended}" if ended else "; ".join(sorted({_reasons(row["sentence"]) for row in done}))
    return "| " + " | ".join([rows[0]["attack"], rows[0]["cohort"], *figures, sound, said[:TOLD]]) + " |"


def _worst(rows: list[dict[str, Any]], name: str) -> str:
    """The least value, and after it what the same federation has without liars."""
    least = min(rows, key=lambda row: row[name])
    before = least.get(f"{name}_before")
    return f"{least[name]:.2f}" + (f" ({before:.2f})" if before is not None else "")


def _range(rows: list[dict[str, Any]], name: str) -> str:
    least, most = min(row[name] for row in rows), max(row[name] for row in rows)
    return str(most) if least == most else f"{least}–{most}"


def _reasons(sentence: str) -> str:
    return sentence.partition("Not to be trusted as it is: ")[2].rstrip(".") or "nothing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attacks", default=",".join(ATTACKS))
    parser.add_argument("--cohorts", default="1of4,1of10,3of10")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--honest", type=int, default=7)
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    found = []
    print(
        "| attack | cohort | F1 (without liars) | pattern | healthy flagged | rank published | sites alarmed |"
        " liars told | sound | told |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    with threadpool_limits(1):
        for rows in rows_of(wanted):
            found += rows
            print(line(rows), flush=True)
            if wanted.json is not None:
                wanted.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
