"""`dcfpca run export`: the model of a finished run, and the reconstructions of those who allow it."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dcfpca.cli.runs import Json, Run
from dcfpca.errors import Refused, Unreachable
from dcfpca.operator.client import Operator
from dcfpca.operator.connection import operates
from dcfpca.text import console
from dcfpca.text.run_views import refusal_document
from dcfpca.v1 import admin_pb2 as pb

if TYPE_CHECKING:
    from dcfpca.operator.downloads import Saved

MANIFEST = "manifest.json"
_POLL_SECONDS = 0.2


@operates
def export(
    operator: Operator,
    run: Run,
    out: Annotated[Path, typer.Option(help="Directory to make; it must not exist or be empty.")],
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for sites that have not answered.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Write U, the singular values and the reconstructions of public participants; refusals are shown with names."""
    from dcfpca.operator import downloads  # noqa: PLC0415  brings the numerics, which to list commands must not cost

    downloads.refuse_unless_empty(out)
    view = operator.run(run)
    if view.status != "finished":
        raise Refused(f"run {run} has not finished, it is {view.status}", f"`dcfpca run watch {run}` shows when it has")
    gathered = gather(operator, view, wait)
    with downloads.staged(out) as work:
        files = downloads.fetch_model(operator, run, work)
        files += [downloads.fetch_reconstruction(operator, run, told, work) for told in gathered.files]
        document = describe(view, gathered, files)
        (work / MANIFEST).write_text(json.dumps(document, indent=2) + "\n")
    _tell(out, gathered, files, as_json)
    if as_json:
        console.print_json(document | {"out": str(out)})
    if gathered.awaited:
        hint = "export again to another directory when they are back"
        raise Unreachable(f"no answer from {', '.join(gathered.awaited)} within {wait:g} s", hint)


def gather(operator: Operator, view: pb.RunView, wait: float) -> pb.ExportView:
    """Ask the sites, and wait until each has sent or refused, or the time is up."""
    if not json.loads(view.spec).get("export"):
        console.say("the spec of this run did not announce exports, so no site is asked; the model is written")
        return pb.ExportView(run_id=view.run_id)
    until = time.monotonic() + wait
    state = operator.request_export(view.run_id)
    while state.awaited and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
        state = operator.export(view.run_id)
    return state


def describe(view: pb.RunView, gathered: pb.ExportView, files: list[Saved]) -> dict[str, console.Json]:
    """What was written and what was not, for the manifest and `--json`."""
    return {
        "run_id": view.run_id,
        "spec_sha256": view.spec_sha256.hex(),
        "files": [dataclasses.asdict(file) for file in files],
        "refusals": [refusal_document(one) for one in gathered.refusals],
        "awaited": list(gathered.awaited),
    }


def _tell(out: Path, gathered: pb.ExportView, files: list[Saved], as_json: bool) -> None:
    for refusal in gathered.refusals:
        console.say(f"{refusal.participant} refused: {'; '.join(refusal.reasons)}")
    if not as_json:
        for file in files:
            console.result(f"{out / file.name}  {console.size(file.size)}")
