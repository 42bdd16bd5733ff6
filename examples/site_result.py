"""What a site finds in its results directory: python site_result.py RESULTS, the `[results] dir` of its daemon."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from scipy import sparse

results = Path(sys.argv[1])
newest = max(results.glob("*/manifest.json"), key=lambda path: path.stat().st_mtime).parent
manifest = json.loads((newest / "manifest.json").read_text(encoding="utf-8"))
print(f"run {manifest['run']}: {manifest['method']}, rank {manifest['rank']}, {manifest['outcome']}")

# Mapped, not read: a site's matrix may be larger than memory.
L = np.load(newest / "L.npy", mmap_mode="r")  # the normal part of this site's columns
S = sparse.csc_array(sparse.load_npz(newest / "S.npz"))  # what was taken out of them
U, V = np.load(newest / "U.npy"), np.load(newest / "V.npy")
print(f"{L.shape[0]} rows, {L.shape[1]} own columns; L = U Vᵀ within {np.abs(L - U @ V.T).max():.1e}")

per_column = np.diff(S.indptr)
for column in np.argsort(-per_column, kind="stable")[:3]:
    rows = ", ".join(str(row) for row in S.indices[S.indptr[column] : S.indptr[column + 1]][:5])
    print(f"column {column}: {per_column[column]} outliers, in rows {rows} …")
