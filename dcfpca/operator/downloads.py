"""Taking files from the aggregator: resumed where they broke, believed only when size and digest are right."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np

from dcfpca import wire
from dcfpca.artifacts import ARTIFACTS
from dcfpca.errors import BadInput, BadMessage
from dcfpca.identity import check_name
from dcfpca.operator.client import Operator
from dcfpca.operator.status_errors import is_lost
from dcfpca.v1 import admin_pb2 as pb
from dcfpca.v1.types_pb2 import DTYPE_FLOAT64, Chunk, TensorPart

_TRIES = 5
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file as written, named relative to the export's directory."""

    name: str
    size: int
    sha256: str


def fetch_model(operator: Operator, run_id: str, into: Path) -> list[SavedFile]:
    """Write U.npy (m × rank) and singular_values.npy of a finished run."""
    parts = operator.model(run_id)
    header = next(parts, TensorPart()).header
    if header.dtype != DTYPE_FLOAT64:
        raise BadMessage("the aggregator sent something that is no model", "check that its version fits this command")
    assembly = wire.Assembly(header)
    for part in parts:
        assembly.add(part.chunk)
    vector = wire.to_array(header, assembly.finish())
    cut = header.rows * header.columns
    arrays = {"U.npy": vector[:cut].reshape(header.rows, header.columns), "singular_values.npy": vector[cut:]}
    for name, array in arrays.items():
        np.save(into / name, array, allow_pickle=False)
    return [saved_file(into, name) for name in arrays]


def saved_file(directory: Path, name: str) -> SavedFile:
    """The size and digest of a file that was written."""
    with (directory / name).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return SavedFile(name, (directory / name).stat().st_size, digest)


def fetch_reconstruction(operator: Operator, run_id: str, told: pb.ExportedFile, into: Path) -> SavedFile:
    """Write one site's file below its name; a broken download goes on where it broke."""
    path = _path_of(told, into)
    path.parent.mkdir(exist_ok=True)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for attempt in range(1, _TRIES + 1):
            try:
                for chunk in operator.reconstruction(run_id, told, file.tell()):
                    _check_chunk(chunk, file.tell(), told)
                    digest.update(chunk.data)
                    file.write(chunk.data)
                break
            except grpc.RpcError as error:
                if not is_lost(error) or attempt == _TRIES:
                    raise
                time.sleep(_PAUSE_SECONDS)
        if file.tell() != told.size or digest.digest() != told.sha256:
            raise BadMessage(
                f"{told.artifact} of {told.participant} does not match its size and digest", "export again"
            )
    return SavedFile(f"{told.participant}/{told.artifact}", told.size, digest.hexdigest())


def _check_chunk(chunk: Chunk, position: int, told: pb.ExportedFile) -> None:
    if chunk.offset != position or position + len(chunk.data) > told.size:
        raise BadMessage(f"{told.artifact} of {told.participant} came with a gap or more bytes than announced")


def _path_of(told: pb.ExportedFile, into: Path) -> Path:
    """Names come over the network and become paths: only plain ones may."""
    check_name(told.participant, "participant")
    if told.artifact not in ARTIFACTS:
        raise BadMessage(f"the aggregator offers {told.artifact!r}, which is no part of a reconstruction")
    return into / told.participant / told.artifact


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A directory to fill that becomes `out` all at once at the end, or vanishes."""
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
    """Nothing that is there is ever overwritten."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} exists and is not an empty directory", "name another directory with --out")
