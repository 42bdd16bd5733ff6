"""The connection flags that operator commands share, as decorators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from dcfpca.operator.client import Operator
from dcfpca.operator.connection import CONNECTION_KEYS, ConnectionSettings, connect_settings, connected
from dcfpca.run_references import find_run, is_whole

_RUN_ARGUMENTS = ("run", "warm_start", "earlier", "later")


def _flag(name: str, help: str, **more: Any) -> Any:
    return typer.Option(f"--{name}", help=help, rich_help_panel="Connection", show_default=False, **more)


_FLAGS = {
    "aggregator": Annotated[str | None, _flag("aggregator", "HOST:PORT of the aggregator, or several with commas.")],
    "ca": Annotated[str | None, _flag("ca", "The consortium's CA certificate.")],
    "cert": Annotated[str | None, _flag("cert", "The certificate: an operator's, or for `run audit` a participant's.")],
    "key": Annotated[str | None, _flag("key", "Its private key.")],
    "config": Annotated[Path | None, _flag("config", "TOML file with these keys.", envvar="DCFPCA_CONFIG")],
}


def with_operator(command: Callable[..., None]) -> Callable[..., None]:
    """Add the connection flags to a command, which is called with a connected `Operator` as its first argument."""

    def connect(settings: ConnectionSettings, /, **given: Any) -> None:
        with connected(settings) as operator:
            command(operator, **(given | _whole_references(operator, given)))

    return _flagged(command, connect)


def _whole_references(operator: Operator, given: dict[str, Any]) -> dict[str, str]:
    """The runs among the arguments by their whole identifiers: people write `latest` or a beginning."""
    short = {key: given[key] for key in _RUN_ARGUMENTS if given.get(key) and not is_whole(given[key])}
    if not short:
        return {}
    runs = operator.runs()
    # A run that failed is no start: a monthly job begins at the last one that finished.
    known = {key: [one.run_id for one in runs if key != "warm_start" or one.status == "finished"] for key in short}
    return {key: find_run(text, known[key]) for key, text in short.items()}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Add the connection flags to a command, which is called with `ConnectionSettings` before any connection."""
    return _flagged(command, command)


def _flagged(command: Callable[..., None], call: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    flags = [inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in _FLAGS.items()]

    @functools.wraps(command)
    def with_connection(**given: Any) -> None:
        config = given.pop("config")
        settings = connect_settings({key: given.pop(key) for key in CONNECTION_KEYS}, config)
        call(settings, **given)

    parameters = [parameter.replace(kind=keyword) for parameter in own] + flags
    shown: Any = with_connection
    shown.__signature__ = signature.replace(parameters=parameters)
    shown.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_connection
