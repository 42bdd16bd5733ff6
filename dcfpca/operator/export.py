"""Asks the sites of a finished run for their reconstructions, and describes what came."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from dcfpca.operator.client import Operator
from dcfpca.operator.downloads import SavedFile, fetch_model, fetch_reconstruction, staged
from dcfpca.v1 import admin_pb2 as pb

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
    """True if the run's spec told the sites that they would be asked for reconstructions."""
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
