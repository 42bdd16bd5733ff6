"""`dcfpca bench`: the group of benchmark commands."""

from __future__ import annotations

import typer

from dcfpca.cli.bench_paper import paper
from dcfpca.cli.bench_peers import peers
from dcfpca.cli.bench_rounds import rounds
from dcfpca.cli.bench_solve import solve

app = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)
app.command()(paper)
app.command()(peers)
app.command()(rounds)
app.command()(solve)


@app.callback()
def bench() -> None:
    """Measure speed on this machine."""
