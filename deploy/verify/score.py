"""How far the sites' results are from the truth of the demo's data; fails where that is not rounding."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, "/demo")
from data import RECIPE, SITES, generate

L = generate(RECIPE, seed=1).L
files = [Path("/parties") / site / "results" / os.environ["RUN"] / "L.npy" for site in SITES]
for _ in range(120):  # a run is over before its sites have written their results, and nobody is told when they have
    if all(file.exists() for file in files):
        break
    time.sleep(0.5)
found = [np.load(file) for file in files]
error = float(np.linalg.norm(np.concatenate(found, axis=1) - L) / np.linalg.norm(L))
sys.stdout.write(f"relative error of L over the three sites: {error:.1e}\n")
sys.exit(error > 1e-6)
