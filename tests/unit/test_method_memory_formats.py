"""What methods keep between rounds, against the version under which it is stored.

When a name changes here, raise the version in `dcfpca/method_memory.py`: a run stored before must not be continued.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dcfpca.method_memory import memory_format, snapshot_format
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.stage import Site
from dcfpca.spec import RunSpec, parse_spec

CLOSING_MEMORY = {"closing/noise", "closing/counters", "closing/curve"}
CHECKED_MEMORY = {*CLOSING_MEMORY, "closing/carriers", "closing/wanted"}
OWN_VIEW = {"own/tensor", "own/scalars", "own/slips", "own/units"}
MEMORY = {
    "private/4": set[str](),
    "subspace/5": {"schedule", "rest"},
    "gradient/5": {"still"},
    "subspace/5 scaled": {"schedule", "rest", "entries"},
    "gradient/5 scaled": {"still", "entries"},
    "subspace/5 closing": {"schedule", "rest", "entries", *CHECKED_MEMORY},
    "gradient/5 closing": {"still", *CLOSING_MEMORY},
    "subspace/5 closing scaled": {"schedule", "rest", "entries", *CHECKED_MEMORY},
    "gradient/5 closing scaled": {"still", "entries", *CLOSING_MEMORY},
}
SUBSPACE = {"fit/U", "fit/V", "fit/fitted", "fit/answered"}
GRADIENT = {"fit/V", "fit/fitted_U", "fit/started"}
SNAPSHOT = {
    "private/4": set[str](),
    "subspace/5": SUBSPACE,
    "gradient/5": GRADIENT,
    "subspace/5 scaled": SUBSPACE,
    "gradient/5 scaled": GRADIENT,
    "subspace/5 closing": {*SUBSPACE, "U", "V", "centre", "made_by", "keys", *OWN_VIEW},
    "gradient/5 closing": {*GRADIENT, "keys"},
    "subspace/5 closing scaled": {*SUBSPACE, "U", "V", "centre", "made_by", "keys", *OWN_VIEW},
    "gradient/5 closing scaled": {*GRADIENT, "keys"},
}
SPECS = [
    parse_spec({"method": method, "rows": 12, "rank": 2, "rounds": 4, "scaling": scaling, "closing_rounds": closing})
    for method in ("subspace", "gradient")
    for scaling in ("none", "robust")
    for closing in (False, True)
]
SPECS.append(parse_spec({"rows": 12, "rank": 2, "privacy": {"epsilon": 9.0, "clip": 1.0, "max_error": 1.0}}))


@pytest.mark.parametrize("spec", SPECS, ids=memory_format)
def test_the_names_of_what_is_kept_belong_to_its_version(spec: RunSpec) -> None:
    memories: list[set[str]] = []
    snapshots: list[set[str]] = []

    def observe(consensus: Consensus, sites: Sequence[Site]) -> None:
        memories.append(set(consensus.memory))
        snapshots.append(set(sites[0].snapshot()))

    data = [ArrayColumns(np.random.default_rng(number).standard_normal((12, 9))) for number in range(2)]
    simulate(method_of(spec), data, observe)
    assert memories[-1] == MEMORY[memory_format(spec)]
    assert snapshots[-1] == SNAPSHOT[snapshot_format(spec)]
