"""What methods keep between rounds, against the version under which it is stored.

When a name changes here, raise the version in `dcfpca/method_formats.py`: a run stored before must not be continued.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dcfpca.method_formats import memory_format, snapshot_format
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus, Site
from dcfpca.rpca.simulate import simulate
from dcfpca.spec import RunSpec, parse_spec

STAGED_MEMORY = {"staged/noise", "staged/closing", "staged/curve"}
MEMORY = {
    "private/3": set[str](),
    "subspace/1": {"schedule", "rest"},
    "gradient/1": {"still"},
    "scaled/1 subspace/1": {"schedule", "rest"},
    "scaled/1 gradient/1": {"still"},
    "staged/1 subspace/1": {"schedule", "rest", *STAGED_MEMORY},
    "staged/1 gradient/1": {"still", *STAGED_MEMORY},
    "scaled/1 staged/1 subspace/1": {"schedule", "rest", *STAGED_MEMORY},
    "scaled/1 staged/1 gradient/1": {"still", *STAGED_MEMORY},
}
STAGED_SUBSPACE = {"U", "V", "keys", "fit/U", "fit/V", "fit/fitted", "fit/answered"}
STAGED_GRADIENT = {"U", "V", "keys", "fit/V", "fit/fitted_U", "fit/started"}
SNAPSHOT = {
    "private/3": set[str](),
    "subspace/1": {"U", "V", "fitted", "answered"},
    "gradient/1": {"V", "fitted_U", "started"},
    "scaled/1 subspace/1": {"U", "V", "fitted", "answered"},
    "scaled/1 gradient/1": {"V", "fitted_U", "started"},
    "staged/2 subspace/1": STAGED_SUBSPACE,
    "staged/2 gradient/1": STAGED_GRADIENT,
    "scaled/1 staged/2 subspace/1": STAGED_SUBSPACE,
    "scaled/1 staged/2 gradient/1": STAGED_GRADIENT,
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
