"""The result of a finished run at the site: L, S, V, U and a manifest, in one directory that appears whole."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dcfpca.methods import method_of
from dcfpca.rpca.exchange import Consensus, FloatArray, Parcel, ResultBlock, Site
from dcfpca.spec import RunSpec
from dcfpca.version import __version__
from participant.files import digest_of, directory_whole

MANIFEST = "manifest.json"
FILES = ("L.npy", "S.npz", "V.npy", "U.npy")


@dataclass(frozen=True, slots=True)
class Finding:
    """What the manifest says beside the figures: who, which run, how it ended, when."""

    run_id: str
    participant: str
    digest: bytes
    rounds: int
    outcome: str
    written: str


def write_results(
    directory: Path, finding: Finding, spec: RunSpec, site: Site, broadcast: Parcel, columns: int
) -> None:
    """Form the result under the final broadcast, block by block, and put it into `directory`/RUN."""
    directory.mkdir(parents=True, exist_ok=True)
    kept = _entering(spec, broadcast)
    with directory_whole(directory / finding.run_id) as target:
        np.save(target / "U.npy", broadcast.tensor[:, kept])
        _write_blocks(target, site.finish(broadcast), (spec.rows, columns), kept)
        manifest = _manifest(finding, spec, int(np.count_nonzero(kept)), columns, site.certificate())
        manifest["files"] = {name: _file_facts(target / name) for name in FILES}
        (target / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _entering(spec: RunSpec, broadcast: Parcel) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which columns of the broadcast's U make up the model: those with no weight take no part in L = U Vᵀ."""
    model = method_of(spec).model(Consensus(0, broadcast))["U"]
    remaining = iter(model.T)
    wanted = next(remaining, None)
    kept = np.zeros(broadcast.tensor.shape[1], dtype=bool)
    for index, column in enumerate(broadcast.tensor.T):
        if wanted is not None and np.array_equal(column, wanted):
            kept[index] = True
            wanted = next(remaining, None)
    # A model that is no selection of the broadcast's columns says nothing about which of them matter.
    return kept if wanted is None else np.ones_like(kept)


def _write_blocks(
    target: Path, blocks: Iterable[ResultBlock], shape: tuple[int, int], kept: np.ndarray[Any, np.dtype[np.bool_]]
) -> None:
    """Stream L and V to disk; only the sparse S is held in memory, because its format needs all counts first."""
    rows, columns = shape
    L = np.lib.format.open_memmap(target / "L.npy", "w+", np.float64, (rows, columns), fortran_order=True)
    V = np.lib.format.open_memmap(target / "V.npy", "w+", np.float64, (columns, int(kept.sum())))
    outliers = []
    for block in blocks:
        stop = block.start + block.L.shape[1]
        L[:, block.start : stop] = block.L
        V[block.start : stop] = block.V[:, kept]
        outliers.append(block.S)
    L.flush()
    V.flush()
    sparse.save_npz(target / "S.npz", sparse.csc_array(sparse.hstack(outliers, format="csc")))


def _manifest(
    finding: Finding, spec: RunSpec, rank: int, columns: int, certificate: dict[str, float]
) -> dict[str, Any]:
    return {
        "run": finding.run_id,
        "label": spec.label,
        "participant": finding.participant,
        "spec_sha256": finding.digest.hex(),
        "spec": json.loads(spec.canonical()),
        "method": spec.method,
        "rounds": finding.rounds,
        "outcome": finding.outcome,
        "rank": rank,
        "rows": spec.rows,
        "columns": columns,
        "orientation": "features-in-rows",
        "certificate": certificate,
        "software": f"dcfpca {__version__}",
        "written": finding.written,
    }


def _file_facts(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": digest_of(path).hex()}


def read_manifests(directory: Path) -> list[dict[str, Any]]:
    """The manifests of all results that are there, oldest first."""
    paths = sorted(directory.glob(f"[!.]*/{MANIFEST}"), key=lambda path: path.stat().st_mtime)
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def load_model(directory: Path, run_id: str) -> FloatArray:
    """U of a finished run."""
    U: FloatArray = np.load(directory / run_id / "U.npy", allow_pickle=False)
    return U
