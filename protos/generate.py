"""Generates dcfpca/v1 from protos/dcfpca/v1 (`make protos`); a test compares its output with the committed stubs."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent


def generate(out: Path) -> None:
    """Write the stubs of every .proto file below `out`."""
    include = str(resources.files("grpc_tools") / "_proto")
    files = sorted(str(path) for path in ROOT.glob("dcfpca/v1/*.proto"))
    flags = [f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}"]
    status = protoc.main(["protoc", f"-I{ROOT}", f"-I{include}", *flags, *files])
    if status:
        raise SystemExit(f"error: protoc failed with status {status}")
    _drop_empty_services(out)


def _drop_empty_services(out: Path) -> None:
    """types.proto has no service; protoc writes a gRPC stub for it all the same."""
    (out / "dcfpca/v1/types_pb2_grpc.py").unlink()


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent)
