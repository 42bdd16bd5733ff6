"""Runs a Typer application and turns its errors into messages on stderr and one of three exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

import typer

from dcfpca import logs
from dcfpca.errors import BadInput, DcfpcaError, UnusableState

DONE, FAILED, MISUSED = 0, 1, 2
"""Exit codes: done; refused or failed; the command line, a configuration, a spec or data must be corrected."""

FOUND = 3
"""Exit code of a command that was asked to look and has found something, for cron and CI."""

EXIT_CODES = "Exit codes: 0 done, 1 refused or failed, 2 misuse (command line, configuration, spec or data)."
"""The sentence that every command's help shows."""


def run_command(
    app: typer.Typer,
    arguments: Sequence[str] | None = None,
    explain: Callable[[Exception], DcfpcaError | None] = lambda _error: None,
) -> None:
    """Run `app` on `arguments` (the process's own by default) and leave with SystemExit.

    A DcfpcaError, or one that `explain` returns, is printed as `error:` and `hint:` on stderr, or as a line of the log
    of a service that logs JSON. Others are bugs and propagate with their traceback.
    """
    # gRPC's C core writes lines of its own to stderr, in no format of ours; what matters of them we log ourselves.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        app(args=None if arguments is None else list(arguments))
    except BrokenPipeError:
        # The reader of our output closed the pipe, as in `dcfpca run list | head`. Flushing at exit must not fail too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except Exception as error:
        explained = error if isinstance(error, DcfpcaError) else explain(error)
        if explained is None:
            raise
        _tell(explained)
        sys.exit(exit_code(explained))


def _tell(error: DcfpcaError) -> None:
    if logs.is_json_service():
        logs.log("ended", level="error", reason=str(error), hint=error.hint or None)
        return
    from dcfpca.text.console import print_error  # noqa: PLC0415  imports rich, which a health probe does without

    print_error(error)


def exit_code(error: DcfpcaError) -> int:
    """MISUSED for input that its author must correct, FAILED for everything else."""
    return MISUSED if isinstance(error, BadInput) and not isinstance(error, UnusableState) else FAILED
