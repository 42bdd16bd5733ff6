"""The result of a finished run at the site: L, S, V, U and a manifest, in one directory that appears whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.methods import method_of
from dcfpca.rpca.method import Consensus, FloatArray, ResultBlock, Site, TensorMessage
from dcfpca.rpca.subspace.locked_columns import unexplained_text
from dcfpca.spec import RunSpec
from dcfpca.version import __version__
from participant.atomic_files import digest_of, directory_whole
from participant.result_files import ColumnsFile, OutliersFile

MANIFEST = "manifest.json"
FILES = ("L.npy", "S.npz", "V.npy", "U.npy")
_NPY = b"\x93NUMPY\x01"  # the version we write, whose head is short
_MANIFEST_KEYS = {"run", "method", "rounds", "rank", "outcome", "files", "spec"}


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
    directory: Path, finding: Finding, spec: RunSpec, site: Site, broadcast: TensorMessage, columns: int
) -> None:
    """Form the result under the final broadcast, block by block, and put it into `directory`/RUN."""
    directory.mkdir(parents=True, exist_ok=True)
    kept = _entering(spec, broadcast)
    with directory_whole(directory / finding.run_id) as target:
        np.save(target / "U.npy", broadcast.tensor[:, kept])
        _write_blocks(target, site.finish(broadcast), (spec.rows, columns), kept)
        manifest = _manifest(finding, spec, int(np.count_nonzero(kept)), columns, site.certificate())
        scaling = _write_scaling(target, method_of(spec).model(Consensus(0, broadcast)))
        if scaling:
            manifest["scaling"] = scaling
        files = (*FILES, *(scaling[name] for name in ("centre", "scale") if scaling))
        manifest["files"] = {name: _file_facts(target / name) for name in files}
        (target / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _entering(spec: RunSpec, broadcast: TensorMessage) -> np.ndarray[Any, np.dtype[np.bool_]]:
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
    """Stream everything to disk as it comes; the matrix may be larger than memory."""
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
    """Centre and scale by feature, where the run had them, and what the manifest says of them."""
    if "centre" not in model:
        return {}
    np.save(target / "centre.npy", model["centre"])
    np.save(target / "scale.npy", model["scale"])
    meaning = "L = centre + scale * (U V^T), row by row; U is in scaled units, L and S are in the data's own"
    return {"centre": "centre.npy", "scale": "scale.npy", "meaning": meaning}


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
        "outcome": finding.outcome + unexplained_text(certificate),
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
    return [_read_manifest(path) for path in paths]


def _read_manifest(path: Path) -> dict[str, Any]:
    """What we wrote, as far as others rely on it; it may have been damaged since."""
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        sound = isinstance(manifest["run"], str) and isinstance(manifest["spec"], dict)
        sound = sound and isinstance(manifest["files"], dict) and not _MANIFEST_KEYS - manifest.keys()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise BadInput(f"{path} is damaged", "restore the result from a backup, or remove its directory")
    return manifest


def has_result(directory: Path, run_id: str) -> bool:
    """Whether the result of this run is there."""
    return (directory / run_id / MANIFEST).exists()


def load_model(directory: Path, run_id: str) -> FloatArray:
    """U of a finished run."""
    return _read_array(directory / run_id / "U.npy")


def _read_array(path: Path) -> FloatArray:
    """Mapped first, so that a head which promises more than there is takes no memory."""
    try:
        with path.open("rb") as file:
            if file.read(len(_NPY)) != _NPY:
                raise ValueError(path)
        array: FloatArray = np.array(np.load(path, mmap_mode="r", allow_pickle=False))
    except Exception as error:  # numpy reads the head as Python would, and fails as variously
        hint = "restore the result from a backup, or take part in the run again"
        raise BadInput(f"{path} is damaged or missing", hint) from error
    return array


def load_scaling(directory: Path, run_id: str, rows: int) -> tuple[FloatArray, FloatArray]:
    """Centre and scale of a finished run; 0 and 1 where it had none."""
    folder = directory / run_id
    if not (folder / "centre.npy").exists():
        return np.zeros(rows), np.ones(rows)
    return _read_array(folder / "centre.npy"), _read_array(folder / "scale.npy")


def load_features(directory: Path, run_id: str) -> tuple[str, ...]:
    """The features that the spec of a finished run named; empty where it named none."""
    features = _read_manifest(directory / run_id / MANIFEST)["spec"].get("features", ())
    return tuple(features) if isinstance(features, list) else ()
