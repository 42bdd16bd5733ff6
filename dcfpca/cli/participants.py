"""`dcfpca participants`: lists participants and revokes their certificates."""

from __future__ import annotations

from typing import Annotated

import typer

from dcfpca.cli.connection_options import with_operator
from dcfpca.cli.runs import Json
from dcfpca.operator.client import Operator
from dcfpca.text.console import print_json, say, show
from dcfpca.text.run_views import participant_document, participants_table

app = typer.Typer(help="List participants, and revoke one.", no_args_is_help=True)


@app.command("list")
@with_operator
def list_participants(operator: Operator, as_json: Json = False) -> None:
    """List every participant that ever connected, with its state and the days left on its certificate."""
    participants = operator.participants()
    if as_json:
        print_json([participant_document(one) for one in participants])
    elif participants:
        show(participants_table(participants))
    else:
        say("no participant has connected yet")


@app.command()
@with_operator
def revoke(
    operator: Operator,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The participant.")],
    reason: Annotated[str, typer.Option(help="The reason, for the audit log.")] = "",
    as_json: Json = False,
) -> None:
    """Revoke a participant, with every certificate of its name, and close its open streams."""
    done = operator.revoke(name, reason)
    if as_json:
        print_json({"name": name, "fingerprints": list(done.fingerprints), "streams_cut": done.streams_cut})
        return
    cut = "one open stream was closed" if done.streams_cut == 1 else f"{done.streams_cut} open streams were closed"
    say(f"{name} is turned away; {cut}")
    say(f"a new certificate is let in only after `dcfpca participants restore {name}`")
    say("publish the revocation at the CA too: `dcfpca certs revoke participant " + name + " --dir DIR`")


@app.command()
@with_operator
def restore(
    operator: Operator,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The participant.")],
    reason: Annotated[str, typer.Option(help="The reason, for the audit log.")] = "",
    as_json: Json = False,
) -> None:
    """Undo `revoke` for a participant; what the CA has revoked stays revoked."""
    done = operator.restore(name, reason)
    if as_json:
        print_json({"name": name, "marks": done.marks})
        return
    say(f"{name} is let in again; a certificate that the CA has revoked stays turned away")
