"""Loops are loaded before they are needed: a run finds all of them compiled."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("numba", reason="there is nothing to compile without the extra fast")

# In a process of its own: the loops of this one may have been compiled by other tests.
RUN = """
import numpy as np
from dataclasses import fields
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.kernels.loop_loading import load_loops
from dcfpca.rpca.kernels.loop_selection import Loops, active_loops
from dcfpca.rpca.simulate import simulate
from dcfpca.spec import RunSpec

def versions():
    return {(field.name, str(s)) for field in fields(Loops) for s in getattr(active_loops(), field.name).signatures}

load_loops(range(1, 5))
load_loops(range(1, 5), writeable=False)
loaded = versions()
rng = np.random.default_rng(0)
for spec in ({"max_rank": 4, "scaling": "robust"}, {"rank": 20, "closing_rounds": False}):
    spec = RunSpec.model_validate({"rows": 40, "rounds": 12, **spec})
    U = rng.standard_normal((40, 3))
    data = [U @ rng.standard_normal((3, 90)) + 0.01 * rng.standard_normal((40, 90)) for _ in range(2)]
    for one in data:
        one[rng.random(one.shape) < 0.05] += 30
    data[0].setflags(write=False)
    simulate(method_of(spec), [ArrayColumns(one) for one in data])
print(*sorted(versions() - loaded), sep="\\n")
"""


@pytest.mark.slow
def test_a_run_compiles_nothing_after_the_loops_are_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
