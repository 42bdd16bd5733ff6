"""A dataset sent through a real federation: one daemon per site, mutual TLS, secure sums, results read from disk."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.local_federation import local_federation, planned
from dcfpca.operator.client import Operator
from dcfpca.rpca.method import FloatArray
from dcfpca.scaffold.background import until
from dcfpca.scaffold.local_consortium import Consortium
from dcfpca.spec import RunSpec
from dcfpca.text.run_progress import RunProgress
from dcfpca.text.run_watch import follow_run, raise_unless_finished

PATIENCE = 120.0


@dataclass(frozen=True, slots=True, eq=False)
class Networked:
    """What the sites wrote, side by side, and what the run cost."""

    L: FloatArray
    rounds: int
    seconds: float
    bytes_per_site_round: float


def over_network(spec: RunSpec, sites: Sequence[FloatArray]) -> Networked:
    """Run this spec over these matrices with the daemons that a consortium would run, with their default policies."""
    names = [f"site-{number:02d}" for number in range(1, len(sites) + 1)]
    with tempfile.TemporaryDirectory(prefix="dcfpca-real-") as directory:
        plan = planned(Path(directory), names, {"engine": {"threads": 1}})
        data = dict(zip(names, sites, strict=True))
        with local_federation(Path(directory), plan, data) as (consortium, operator):
            return _run(operator, spec.model_copy(update={"participants": tuple(names)}), consortium)


def _run(operator: Operator, spec: RunSpec, consortium: Consortium) -> Networked:
    with RunProgress() as progress:
        began = time.monotonic()
        run_id = operator.propose(spec.canonical(), uuid.uuid4().hex).run_id
        view = follow_run(operator, run_id, progress)
        seconds = time.monotonic() - began
    raise_unless_finished(view)
    results = [consortium.results(name, run_id) for name in spec.participants]
    written = [path / "manifest.json" for path in results]
    daemons = consortium.sites.values()
    until(lambda: all(path.exists() for path in written), daemons, "the sites' results", PATIENCE)
    L = np.concatenate([np.load(path / "L.npy") for path in results], axis=1)
    worked = [one for one in view.rounds if one.round > 0]
    moved = sum(one.bytes_sent + one.bytes_received for one in worked)
    return Networked(L, len(worked), seconds, moved / (len(worked) * len(results)))
