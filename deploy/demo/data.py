"""One-shot service of compose.yaml: a matrix of known truth (rank 5, 5 % gross errors), split over three sites."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from dcfpca.rpca.synthetic import Recipe, generate

SITES = ("site-a", "site-b", "site-c")
RECIPE = Recipe(rows=200, columns=600, rank=5, counts=(100, 200, 300))


def main() -> None:
    """Write what is not there yet, so that a second `up` keeps the data."""
    parties = Path(os.environ.get("PARTIES", "/parties"))
    M, start = generate(RECIPE, seed=1).M, 0
    for site, count in zip(SITES, RECIPE.counts, strict=True):
        path = parties / site / "data.npy"
        if not path.exists():
            np.save(path, M[:, start : start + count])
            path.chmod(0o444)
        start += count


if __name__ == "__main__":
    main()
