"""Four sites and an aggregator in one process: what a federation computes, without the network."""

from __future__ import annotations

import numpy as np

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.simulate import simulate
from dcfpca.spec import parse_spec

ROWS, COLUMNS = 80, (40, 70, 90, 120)

rng = np.random.default_rng(1)
common = rng.standard_normal((ROWS, 4))
truth = [common @ rng.standard_normal((4, count)) for count in COLUMNS]
sites = [L + np.where(rng.random(L.shape) < 0.1, rng.choice([-20.0, 20.0], L.shape), 0.0) for L in truth]

# The same spec that an operator proposes; the method is what it makes of it, here as there.
spec = parse_spec({"rows": ROWS, "max_rank": 12, "rounds": 100, "tolerance": 1e-9})
run = simulate(method_of(spec), [ArrayColumns(own) for own in sites])

assert run.consensus.outcome is not None
print(f"rank {run.consensus.progress.rank} after {len(run.history)} rounds: {run.consensus.outcome.value}")
for number, (result, L) in enumerate(zip(run.results, truth, strict=True), start=1):
    error = np.linalg.norm(result.L - L) / np.linalg.norm(L)
    print(f"site {number}: {L.shape[1]} columns, {result.S.nnz} outliers, L within {error:.1e} of the truth")
