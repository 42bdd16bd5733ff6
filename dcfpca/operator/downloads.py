"""Downloads and exports: resumed after a lost connection, accepted only if size and digest match."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput, BadMessage
from dcfpca.identity import check_name
from dcfpca.operator.client import Operator, is_lost
from dcfpca.v1 import admin_pb2 as pb
from dcfpca.v1.types_pb2 import DTYPE_FLOAT64, Chunk, TensorPart
from dcfpca.wire import tensors
from dcfpca.wire.constants import ARTIFACTS

FloatArray = NDArray[np.float64]

_TRIES = 5
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A downloaded file, with its path relative to the export directory."""

    name: str
    size: int
    sha256: str


def fetch_model(operator: Operator, run_id: str, into: Path) -> list[SavedFile]:
    """Write U.npy (m × rank) and singular_values.npy of a finished run."""
    U, values = model_arrays(operator, run_id)
    arrays = {"U.npy": U, "singular_values.npy": values}
    for name, array in arrays.items():
        np.save(into / name, array, allow_pickle=False)
    return [saved_file(into, name) for name in arrays]


def model_arrays(operator: Operator, run_id: str) -> tuple[FloatArray, FloatArray]:
    """U (m × rank) and the singular values of a finished run; BadMessage unless size and digest match."""
    parts = operator.model(run_id)
    header = next(parts, TensorPart()).header
    if header.dtype != DTYPE_FLOAT64:
        raise BadMessage(
            "the aggregator sent something that is not a model", "check that both sides have the same version"
        )
    assembly = tensors.Assembly(header)
    for part in parts:
        assembly.add(part.chunk)
    vector = tensors.to_array(header, assembly.finish().data).astype(np.float64)
    cut = header.rows * header.columns
    return vector[:cut].reshape(header.rows, header.columns), vector[cut:]


def saved_file(directory: Path, name: str) -> SavedFile:
    """The size and digest of a file on disk."""
    with (directory / name).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return SavedFile(name, (directory / name).stat().st_size, digest)


def fetch_reconstruction(operator: Operator, run_id: str, offered: pb.ExportedFile, into: Path) -> SavedFile:
    """Write one site's file to a directory with its name; resumes after a lost connection, up to five attempts."""
    path = _path_of(offered, into)
    path.parent.mkdir(exist_ok=True)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for attempt in range(1, _TRIES + 1):
            try:
                for chunk in operator.reconstruction(run_id, offered, file.tell()):
                    _check_chunk(chunk, file.tell(), offered)
                    digest.update(chunk.data)
                    file.write(chunk.data)
                break
            except grpc.RpcError as error:
                if not is_lost(error) or attempt == _TRIES:
                    raise
                time.sleep(_PAUSE_SECONDS)
        if file.tell() != offered.size or digest.digest() != offered.sha256:
            raise BadMessage(
                f"{offered.artifact} of {offered.participant} does not match its size and digest", "export again"
            )
    return SavedFile(f"{offered.participant}/{offered.artifact}", offered.size, digest.hexdigest())


def _check_chunk(chunk: Chunk, position: int, offered: pb.ExportedFile) -> None:
    if chunk.offset != position or position + len(chunk.data) > offered.size:
        raise BadMessage(
            f"{offered.artifact} of {offered.participant} arrived with a gap or with more bytes than announced"
        )


def _path_of(offered: pb.ExportedFile, into: Path) -> Path:
    """Names from the network become paths only after validation."""
    check_name(offered.participant, "participant")
    if offered.artifact not in ARTIFACTS:
        raise BadMessage(f"the aggregator offers {offered.artifact!r}, which is not part of a reconstruction")
    return into / offered.participant / offered.artifact


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A temporary directory that becomes `out` atomically on success and is removed on failure."""
    refuse_unless_empty(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    try:
        yield work
        work.chmod(0o755)
        os.replace(work, out)  # noqa: PTH105 -- replaces an empty directory too
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def refuse_unless_empty(out: Path) -> None:
    """Raise BadInput if `out` exists and is not an empty directory: nothing is overwritten."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} exists and is not an empty directory", "name another directory with --out")


MANIFEST = "manifest.json"


def request_reconstructions(operator: Operator, view: pb.RunView, wait: float) -> pb.ExportView:
    """Ask the sites, and wait until each has sent or refused, for `wait` seconds at most.

    No site is asked if the run's spec did not announce exports.
    """
    if not announces_export(view):
        return pb.ExportView(run_id=view.run_id)
    until = time.monotonic() + wait
    state = operator.request_export(view.run_id)
    while state.awaited and time.monotonic() < until:
        state = operator.export(view.run_id, until - time.monotonic())
    return state


def announces_export(view: pb.RunView) -> bool:
    """True if the run's spec announced that sites would be asked for their reconstructions."""
    return bool(json.loads(view.spec).get("export"))


def download_export(
    operator: Operator, view: pb.RunView, exported: pb.ExportView, out: Path
) -> tuple[list[SavedFile], dict[str, Any]]:
    """Write the model, the sites' files and a manifest to `out`, all or nothing; returns the files and the manifest."""
    with staged(out) as work:
        files = fetch_model(operator, view.run_id, work)
        files += [fetch_reconstruction(operator, view.run_id, file, work) for file in exported.files]
        manifest = export_manifest(view, exported, files)
        (work / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    return files, manifest


def export_manifest(view: pb.RunView, exported: pb.ExportView, files: list[SavedFile]) -> dict[str, Any]:
    """The manifest of an export: files written, refusals, and participants that did not answer."""
    return {
        "run_id": view.run_id,
        "spec_sha256": view.spec_sha256.hex(),
        "files": [dataclasses.asdict(file) for file in files],
        "refusals": [
            {"participant": one.participant, "what": one.what, "reasons": list(one.reasons)}
            for one in exported.refusals
        ],
        "awaited": list(exported.awaited),
    }
