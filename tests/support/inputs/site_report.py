"""A site with a finished run whose data, L and S are given, to make reports of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from participant.config import Config, load_config

NAMES = [f"lab {letter}" for letter in "abcdefghijklmnopqrst"]


def manifest(**more: Any) -> dict[str, Any]:
    """Of a run of rank 1 whose answer is sound."""
    made = {
        "spec": {},
        "run": "r1",
        "label": "<b>spring</b>",
        "participant": "a",
        "outcome": "converged",
        "method": "subspace",
        "rank": 1,
        "rounds": 5,
        "spec_sha256": "00",
        "certificate": {"stationarity": 1e-9},
        "files": {"L.npy": {"bytes": 1, "sha256": "ff"}},
        "verdict": {"sound": True, "checked": True, "sentence": "Rank 1 predicts 90 %.", "reasons": []},
    }
    copied: dict[str, Any] = json.loads(json.dumps(made | more))
    return copied


def site_with(tmp_path: Path, M: np.ndarray, L: np.ndarray, S: np.ndarray, data: str = "") -> Config:
    """The configuration of the site; `data` are more lines of its `[data]`."""
    np.save(tmp_path / "data.npy", M)
    result = tmp_path / "results" / "r1"
    result.mkdir(parents=True)
    np.save(result / "L.npy", L)
    U, values, V = np.linalg.svd(L, full_matrices=False)
    np.save(result / "U.npy", U[:, :1] * values[0])
    np.save(result / "V.npy", V[:1].T)
    sparse.save_npz(result / "S.npz", sparse.csc_array(S))
    (tmp_path / "names.txt").write_text("\n".join(NAMES[: M.shape[0]]))
    (tmp_path / "participant.toml").write_text(
        '[aggregator]\naddress = "a:1"\n[identity]\nca = "x"\ncert = "x"\nkey = "x"\n[data]\npath = "data.npy"\n'
        f'missing = "allow"\n{data}\n[state]\ndir = "state"\n[results]\ndir = "results"\n'
    )
    return load_config(tmp_path / "participant.toml")
