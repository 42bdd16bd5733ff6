"""Reads the results of finished runs, and deletes old ones; damaged files raise UnusableState."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from dcfpca.errors import UnusableState
from dcfpca.rpca.method import FloatArray
from dcfpca.spec import RunSpec, parse_kept_spec
from participant.results.manifest import MANIFEST

_NPY = b"\x93NUMPY\x01"  # the only version that this package writes
_MANIFEST_KEYS = {"run", "method", "rounds", "rank", "outcome", "files", "spec"}


def read_manifests(directory: Path) -> list[dict[str, Any]]:
    """The manifests of all results in the directory, oldest first."""
    paths = sorted(directory.glob(f"[!.]*/{MANIFEST}"), key=lambda path: path.stat().st_mtime)
    return [read_manifest(path.parent) for path in paths]


def read_manifest(result: Path) -> dict[str, Any]:
    """The manifest of a result, with the keys that callers rely on; UnusableState when it is damaged."""
    path = result / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        sound = isinstance(manifest["run"], str) and isinstance(manifest["spec"], dict)
        sound = sound and isinstance(manifest["files"], dict) and not _MANIFEST_KEYS - manifest.keys()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise UnusableState(f"{path} is damaged", "restore the result from a backup, or remove its directory")
    return {**manifest, "directory": str(result)}


def has_result(directory: Path, run_id: str) -> bool:
    """Whether there is a result of this run."""
    return (directory / run_id / MANIFEST).exists()


def load_model(directory: Path, run_id: str) -> FloatArray:
    """U of a finished run."""
    return _read_array(directory / run_id / "U.npy")


def _read_array(path: Path) -> FloatArray:
    """Load an .npy file; UnusableState when it is damaged. Mapped first, so that a false header allocates no memory."""
    try:
        with path.open("rb") as file:
            if file.read(len(_NPY)) != _NPY:
                raise ValueError(path)
        array: FloatArray = np.array(np.load(path, mmap_mode="r", allow_pickle=False))
    except Exception as error:  # numpy parses the header as Python source and raises many kinds of error
        hint = "restore the result from a backup, or take part in the run again"
        raise UnusableState(f"{path} is damaged or missing", hint) from error
    return array


def load_scaling(directory: Path, run_id: str, rows: int) -> tuple[FloatArray, FloatArray]:
    """Centre and scale of a finished run; zeros and ones if it had none."""
    folder = directory / run_id
    if not (folder / "centre.npy").exists():
        return np.zeros(rows), np.ones(rows)
    return _read_array(folder / "centre.npy"), _read_array(folder / "scale.npy")


def load_features(directory: Path, run_id: str) -> tuple[str, ...]:
    """The features that the spec of a finished run named; empty if it named none."""
    features = read_manifest(directory / run_id)["spec"].get("features", ())
    return tuple(features) if isinstance(features, list) else ()


def load_spec(directory: Path, run_id: str) -> RunSpec:
    """The spec of a finished run, as its manifest has it."""
    return parse_kept_spec(read_manifest(directory / run_id)["spec"])


DAY_SECONDS = 86400.0


def expired_results(directory: Path, keep_runs: int, keep_days: float, now: float) -> list[Path]:
    """The result directories beyond the newest `keep_runs`, or written `keep_days` ago; 0 keeps all."""
    written = {path.parent: path.stat().st_mtime for path in directory.glob(f"[!.]*/{MANIFEST}")}
    newest = sorted(written, key=written.__getitem__, reverse=True)
    beyond = newest[keep_runs:] if keep_runs else []
    old = [path for path in newest if keep_days and written[path] < now - keep_days * DAY_SECONDS]
    return sorted({*beyond, *old})


def delete_expired_results(directory: Path, keep_runs: int, keep_days: float, now: float) -> list[str]:
    """Delete them; returns the runs whose results are gone."""
    expired = expired_results(directory, keep_runs, keep_days, now)
    for path in expired:
        shutil.rmtree(path, ignore_errors=True)
    return [path.name for path in expired]
