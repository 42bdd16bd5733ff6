"""How far the sites' results are from the truth of the demo's data; fails where that is not rounding."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, "/demo")
from data import RECIPE, SITES, generate

L = generate(RECIPE, seed=1).L
found = [np.load(Path("/parties") / site / "results" / os.environ["RUN"] / "L.npy") for site in SITES]
error = float(np.linalg.norm(np.concatenate(found, axis=1) - L) / np.linalg.norm(L))
sys.stdout.write(f"relative error of L over the three sites: {error:.1e}\n")
sys.exit(error > 1e-6)
