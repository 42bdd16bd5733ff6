"""Loops are loaded before they are needed: a run finds all of them compiled."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.kernels import block_step, compiled_loops
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.simulate import exchange
from dcfpca.spec import parse_spec

pytest.importorskip("numba", reason="there is nothing to compile without the extra fast")

# In a process of its own: the loops of this one may have been compiled by other tests.
RUN = """
import numpy as np
from dataclasses import fields, replace
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.kernels.compiled_loops import Loops, active_loops, load_loops
from dcfpca.rpca.refinement.hidden_entries import HiddenEntryLoops, compiled_loops, load_hidden_entry_loops
from dcfpca.rpca.simulate import collect, exchange
from dcfpca.spec import RunSpec
from dcfpca.rpca.method import TensorMessage

def versions():
    kinds = (Loops, active_loops()), (HiddenEntryLoops, compiled_loops())
    return {(field.name, str(s)) for kind, loops in kinds for field in fields(kind)
            for s in getattr(loops, field.name).signatures}

load_loops(range(1, 5))
load_hidden_entry_loops()
loaded = versions()
rng = np.random.default_rng(0)
for spec in ({"max_rank": 4, "scaling": "robust"}, {"rank": 20, "closing_rounds": False}):
    spec = RunSpec.model_validate({"rows": 40, "rounds": 12, **spec})
    U = rng.standard_normal((40, 3))
    data = [U @ rng.standard_normal((3, 90)) + 0.01 * rng.standard_normal((40, 90)) for _ in range(2)]
    for one in data:
        one[rng.random(one.shape) < 0.05] += 30
    data[0].setflags(write=False)
    method = method_of(spec)
    sites, consensus = [method.site(ArrayColumns(one)) for one in data], method.begin()
    while consensus.outcome is None:
        # As a daemon has it: over the bytes of a message, which may not be written to.
        broadcast = TensorMessage(*(np.frombuffer(part.tobytes()).reshape(part.shape) for part in
                                    (consensus.broadcast.tensor, consensus.broadcast.scalars)))
        consensus = method.advance(consensus, exchange(method, replace(consensus, broadcast=broadcast), sites))
    results = [collect(site, consensus) for site in sites]
print(*sorted(versions() - loaded), sep="\\n")
"""


def test_a_round_does_without_the_loops_of_a_width_that_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    M = rng.standard_normal((40, 4)) @ rng.standard_normal((4, 90))
    M[rng.random(M.shape) < 0.05] += 30
    method = method_of(parse_spec({"rows": 40, "rank": 4, "subspace": {"single": 1.0}}))

    def rounds() -> FloatArray:
        site, consensus = method.site(ArrayColumns(M)), method.begin()
        for _ in range(5):
            consensus = method.advance(consensus, exchange(method, consensus, [site]))
        return consensus.broadcast.flat()

    expected = rounds()
    monkeypatch.setattr(compiled_loops, "_loaded", set())
    compiled_loops.await_thin_loops([4])
    with monkeypatch.context() as nothing_thin:
        nothing_thin.setattr(block_step, "_thin_pass", None)
        found = rounds()
    assert float(np.linalg.norm(found - expected)) <= 1e-10 * float(np.linalg.norm(expected))
    compiled_loops.load_thin_loops(4)
    assert 4 not in compiled_loops.AWAITED_WIDTHS
    np.testing.assert_array_equal(rounds(), expected)


@pytest.mark.slow
def test_a_run_compiles_nothing_after_the_loops_are_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
