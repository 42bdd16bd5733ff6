"""Writes the result of a finished run: L, S, V, U and a manifest, in a directory that appears complete."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dcfpca.atomic_files import atomic_directory, sha256_of_file
from dcfpca.methods import method_of
from dcfpca.rpca.method import Consensus, FloatArray, ResultBlock, Site, TensorMessage
from dcfpca.rpca.subspace.rejected_columns import unexplained_text
from dcfpca.spec import RunSpec
from dcfpca.version import __version__
from participant.results.block_files import ColumnsFile, OutliersFile
from participant.results.reading import MANIFEST

FILES = ("L.npy", "S.npz", "V.npy", "U.npy")


@dataclass(frozen=True, slots=True)
class ResultFacts:
    """What the manifest says besides figures: participant, run, outcome and time."""

    run_id: str
    participant: str
    digest: bytes
    rounds: int
    outcome: str
    written: str


def write_results(
    directory: Path, facts: ResultFacts, spec: RunSpec, site: Site, broadcast: TensorMessage, columns: int
) -> None:
    """Compute the result from the final broadcast, block by block, and write it to `directory`/RUN."""
    directory.mkdir(parents=True, exist_ok=True)
    kept = _entering(spec, broadcast)
    with atomic_directory(directory / facts.run_id) as target:
        np.save(target / "U.npy", broadcast.tensor[:, kept])
        _write_blocks(target, site.finish(broadcast), (spec.rows, columns), kept)
        manifest = _manifest(facts, spec, int(np.count_nonzero(kept)), columns, site.certificate())
        scaling = _write_scaling(target, method_of(spec).model(Consensus(0, broadcast)))
        if scaling:
            manifest["scaling"] = scaling
        files = (*FILES, *(scaling[name] for name in ("centre", "scale") if scaling))
        manifest["files"] = {name: _file_facts(target / name) for name in files}
        (target / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _entering(spec: RunSpec, broadcast: TensorMessage) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which columns of the broadcast's U belong to the model; columns without weight do not contribute to L = U Vᵀ."""
    model = method_of(spec).model(Consensus(0, broadcast))["U"]
    remaining = iter(model.T)
    wanted = next(remaining, None)
    kept = np.zeros(broadcast.tensor.shape[1], dtype=bool)
    for index, column in enumerate(broadcast.tensor.T):
        if wanted is not None and np.array_equal(column, wanted):
            kept[index] = True
            wanted = next(remaining, None)
    # A model that is not a selection of the broadcast's columns does not tell which of them matter: all are kept.
    return kept if wanted is None else np.ones_like(kept)


def _write_blocks(
    target: Path, blocks: Iterable[ResultBlock], shape: tuple[int, int], kept: np.ndarray[Any, np.dtype[np.bool_]]
) -> None:
    """Write each block as it is computed, because the matrix may be larger than memory."""
    rows, columns = shape
    width = int(kept.sum())
    with (
        ColumnsFile(target / "L.npy", rows, columns) as L,
        ColumnsFile(target / "V.npy", width, columns, turned=True) as V,
        OutliersFile(target / "S.npz", rows, columns) as S,
    ):
        for block in blocks:
            L.append(block.L)
            V.append(block.V[:, kept].T)
            S.append(block.S)


def _write_scaling(target: Path, model: Mapping[str, FloatArray]) -> dict[str, str]:
    """Write centre and scale by feature, if the run had them; returns what the manifest says about them."""
    if "centre" not in model:
        return {}
    np.save(target / "centre.npy", model["centre"])
    np.save(target / "scale.npy", model["scale"])
    meaning = "L = centre + scale * (U V^T), row by row; U is in scaled units, L and S are in the data's own"
    return {"centre": "centre.npy", "scale": "scale.npy", "meaning": meaning}


def _manifest(
    facts: ResultFacts, spec: RunSpec, rank: int, columns: int, certificate: dict[str, float]
) -> dict[str, Any]:
    return {
        "run": facts.run_id,
        "label": spec.label,
        "participant": facts.participant,
        "spec_sha256": facts.digest.hex(),
        "spec": json.loads(spec.canonical()),
        "method": spec.method,
        "rounds": facts.rounds,
        "outcome": facts.outcome + unexplained_text(certificate),
        "rank": rank,
        "rows": spec.rows,
        "columns": columns,
        "orientation": "features-in-rows",
        "certificate": certificate,
        "software": f"dcfpca {__version__}",
        "written": facts.written,
    }


def _file_facts(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256_of_file(path).hex()}
