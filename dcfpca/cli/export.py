"""`dcfpca run export`: writes the model of a finished run and the reconstructions of sites that allow it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dcfpca.cli.connection_options import with_operator
from dcfpca.cli.runs import Json, Run
from dcfpca.errors import Refused, Unreachable
from dcfpca.operator.client import Operator
from dcfpca.text.console import print_json, result, say, size
from dcfpca.v1 import admin_pb2 as pb

if TYPE_CHECKING:
    from dcfpca.operator.downloads import SavedFile


@with_operator
def export(
    operator: Operator,
    run: Run,
    out: Annotated[Path, typer.Option(help="Directory to create; an existing one must be empty.")],
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for sites that have not answered.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Write U, the singular values and the reconstructions of public participants; name those who refuse."""
    from dcfpca.operator import downloads  # noqa: PLC0415  imports NumPy, which other commands must not wait for
    from dcfpca.operator.export import announces_export, download_export, request_reconstructions  # noqa: PLC0415

    downloads.refuse_unless_empty(out)
    view = operator.run(run)
    if view.status != "finished":
        raise Refused(f"run {run} has not finished, it is {view.status}", f"`dcfpca run watch {run}` shows when it has")
    if not announces_export(view):
        say("the spec of this run did not announce exports, so no site is asked; only the model is written")
    exported = request_reconstructions(operator, view, wait)
    files, manifest = download_export(operator, view, exported, out)
    _show(out, exported, files, as_json)
    if as_json:
        print_json(manifest | {"out": str(out)})
    if exported.awaited:
        hint = "export again to another directory when they are back"
        raise Unreachable(f"no answer from {', '.join(exported.awaited)} within {wait:g} s", hint)


def _show(out: Path, exported: pb.ExportView, files: list[SavedFile], as_json: bool) -> None:
    for refusal in exported.refusals:
        say(f"{refusal.participant} refused: {'; '.join(refusal.reasons)}")
    if not as_json:
        for file in files:
            result(f"{out / file.name}  {size(file.size)}")
