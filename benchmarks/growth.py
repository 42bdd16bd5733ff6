"""What a round costs as the problem grows: in columns n_i, rows m, rank r at a site, and in participants E.

    python -m benchmarks.growth --json growth.json
    python -m benchmarks.growth --federation 4 16 64      # real processes as well; takes minutes

Site figures are CPU seconds of the local step on one thread, the median of a few rounds, with the exponent of the power
law fitted to them (1: linear). Bytes per participant and round are those of the protocol's own messages, encoded. The
federation's figures (seconds per round, the aggregator's memory) come from `benchmarks.many`.
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
from dcfpca.rpca.columns import ArrayColumns
from dcfpca.rpca.exchange import Total
from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.secagg.graph import degree_for
from dcfpca.secagg.keys import KEY_BYTES
from dcfpca.secagg.shamir import SHARE_BYTES
from dcfpca.spec import parse_spec
from dcfpca.v1 import rounds_pb2 as pb
from participant.contract import SEALED_BYTES

BASE = {"rows": 500, "columns": 4000, "rank": 10}
SERIES = {
    "columns": [1000, 2000, 4000, 8000, 16000],
    "rows": [125, 250, 500, 1000, 2000],
    "rank": [5, 10, 20, 40, 80],
}
COHORTS = [3, 8, 16, 32, 64, 65, 128, 256, 512, 1000]
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default="", help="write the document here too")
    parser.add_argument("--federation", type=int, nargs="*", default=[], metavar="E", help="cohorts of real processes")
    options = parser.parse_args()
    threadpool_limits(limits=1)
    report: dict[str, Any] = {"base": BASE, "site": {key: site_series(key) for key in SERIES}}
    report["bytes_per_participant"] = [bytes_of(cohort) for cohort in COHORTS]
    report["federation"] = [federation(cohort) for cohort in options.federation]
    text = json.dumps(report, indent=2)
    if options.json:
        Path(options.json).write_text(text + "\n")
    print(text)


def site_series(key: str) -> dict[str, Any]:
    points = [site_cost(**(BASE | {key: value})) for value in SERIES[key]]
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
        update = site.answer(consensus.round, consensus.broadcast)
        spent.append(time.process_time() - started)
        consensus = method.advance(consensus, Total(update, 1))
    state = sum(array.nbytes for array in site.snapshot().values())
    cost = {"cpu_seconds": median(spent[2:]), "opening_cpu_seconds": spent[0], "state_bytes": state}
    return {"rows": rows, "columns": columns, "rank": rank, **cost}


def bytes_of(cohort: int, rows: int = 1000, rank: int = 20) -> dict[str, Any]:
    """What one participant sends in a secure round, by message."""
    peers = cohort - 1 if cohort <= 64 else degree_for(cohort)
    key, name = bytes(KEY_BYTES), "site-0001.example.org"
    layout = method_of(parse_spec({"rows": rows, "rank": rank})).update_layout(1)
    keys = pb.AdvertiseKeysRequest(
        keys=pb.AdvertisedKeys(
            participant=name, sealing_key=key, masking_key=key, commitment=key, binding=key, signature=bytes(72)
        )
    )
    sealed = pb.SealedShares(sender=name, recipient=name, ciphertext=bytes(SEALED_BYTES))
    shares = pb.ShareKeysRequest(shares=[sealed] * peers)
    reveal = pb.UnmaskRequest(survivor_shares=[pb.RevealedShare(owner=name, share=bytes(SHARE_BYTES))] * peers)
    parts = {
        "keys": keys.ByteSize(),
        "shares": shares.ByteSize(),
        "update": layout.size * 8,
        "reveal": reveal.ByteSize(),
    }
    return {"participants": cohort, "neighbours": peers, **parts, "total": sum(parts.values())}


def federation(cohort: int) -> dict[str, Any]:
    """A cohort of light clients against the real aggregator."""
    from benchmarks.many import measure  # noqa: PLC0415  needs the tests' support, which a checkout has

    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), cohort, rounds=3, rows=1000, rank=10, processes=2)
    return asdict(figures) | {"beyond_connections_kib": figures.beyond_connections_kib}


if __name__ == "__main__":
    main()
