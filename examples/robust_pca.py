"""Robust PCA of data in one place: samples in rows, as everywhere in scikit-learn."""

from __future__ import annotations

import numpy as np

from dcfpca import RobustPCA

rng = np.random.default_rng(0)
normal = rng.standard_normal((400, 3)) @ rng.standard_normal((3, 60))
hit = rng.random(normal.shape) < 0.05
data = normal + np.where(hit, rng.choice([-30.0, 30.0], normal.shape), 0.0)
data[rng.random(data.shape) < 0.02] = np.nan  # not observed

model = RobustPCA(max_rank=12).fit(data)
print(f"rank {model.rank_} after {model.n_iter_} rounds: {model.outcome_}")

error = np.linalg.norm(model.low_rank_ - normal) / np.linalg.norm(normal)
seen = ~np.isnan(data)
print(f"low-rank part within {error:.1e} of the truth")
print(f"outliers found: {np.count_nonzero(model.outliers_ & hit)} of {np.count_nonzero(hit & seen)}")

strange = rng.standard_normal((1, 60)) * 5
scores = model.score_samples(np.concatenate([normal[:1], strange]))
print(f"how normal a usual and a strange sample are: {scores[0]:.2g} and {scores[1]:.2g}")
