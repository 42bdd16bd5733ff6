"""The connection of a command: where its settings come from, and the channel made of them."""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import grpc
import typer

from dcfpca.doctor.connection_diagnosis import Address, Files
from dcfpca.errors import BadInput
from dcfpca.operator.client import Operator
from dcfpca.operator.status_errors import explain
from dcfpca.pki import Credentials, load_credentials

_KEYS = ("aggregator", "ca", "cert", "key")
_EXAMPLE = 'aggregator = "HOST:PORT", ca = "ca.crt", cert = "me.crt", key = "me.key"'
# A watch may be silent for as long as a round takes; keepalive stops NATs and proxies from forgetting it.
_CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    # How long one attempt may take: TCP and TLS over a slow line or with a busy aggregator need more than a moment.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 3_000),
    # An aggregator that was moved, or restarted as a container, comes back under another address.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.max_receive_message_length", 64 << 20),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a command needs to connect."""

    address: Address
    files: Files


def connect_settings(flags: dict[str, str | None], config: Path | None) -> Settings:
    """Flags win over the file; what is in neither is named, all at once."""
    merged = _read_config(config) if config else {}
    merged |= {key: value for key, value in flags.items() if value is not None}
    missing = [key for key in _KEYS if not merged.get(key)]
    if missing:
        flags_text = " ".join(f"--{key}" for key in missing)
        hint = f"give {flags_text}, or a file with {_EXAMPLE} by --config or DCFPCA_CONFIG"
        raise BadInput(f"the connection to the aggregator lacks: {', '.join(missing)}", hint)
    files = Files(*(Path(merged[key]) for key in ("ca", "cert", "key")))
    return Settings(Address.parse(merged["aggregator"]), files)


def _read_config(path: Path) -> dict[str, str]:
    """The connection's keys, at top level or under [operator]; or those of a participant's configuration."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadInput(
            f"the config {path} cannot be read: {error.strerror}", "check --config or DCFPCA_CONFIG"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"the config {path} is not valid TOML: {error}", f"write {_EXAMPLE}, one per line") from None
    if isinstance(content.get("identity"), dict):
        content = _of_participant(content)
    section = content.pop("operator", {})
    keys = content | section if isinstance(section, dict) else content | {"operator": section}
    return {key: _value(path, key, value) for key, value in keys.items()}


def _of_participant(content: dict[str, Any]) -> dict[str, Any]:
    """A site has its own file already: it connects to the same aggregator as the same participant."""
    aggregator = content.get("aggregator")
    address = aggregator.get("address") if isinstance(aggregator, dict) else aggregator
    keys = {key: content["identity"][key] for key in ("ca", "cert", "key") if key in content["identity"]}
    return keys if address is None else {"aggregator": address, **keys}


def _value(path: Path, key: str, value: object) -> str:
    if key not in _KEYS:
        raise BadInput(f"{path}: there is no key {key!r}", f"the keys are {', '.join(_KEYS)}")
    if not isinstance(value, str):
        raise BadInput(f"{path}: {key} must be text in quotes, not {value!r}", f"write {_EXAMPLE}, one per line")
    return value if key == "aggregator" else str(path.parent / value)


@contextmanager
def connected(settings: Settings) -> Iterator[Operator]:
    """Check the certificate, open the channel, and turn gRPC's errors into ours. Its role decides at each call."""
    files = settings.files
    own = load_credentials(files.ca, files.cert, files.key, now=datetime.now(UTC))
    with channel_to(settings.address, own) as channel:
        try:
            yield Operator(channel, settings.address, own.identity)
        except grpc.RpcError as error:
            raise explain(error, settings.address, files) from error


def channel_to(address: Address, own: Credentials) -> grpc.Channel:
    """A channel over mutual TLS."""
    tls = grpc.ssl_channel_credentials(own.ca_pem, own.key_pem, own.cert_pem)
    return grpc.secure_channel(str(address), tls, options=_CHANNEL_OPTIONS)


def _flag(name: str, help: str, **more: Any) -> Any:
    return typer.Option(f"--{name}", help=help, rich_help_panel="Connection", show_default=False, **more)


_FLAGS = {
    "aggregator": Annotated[str | None, _flag("aggregator", "HOST:PORT of the aggregator.")],
    "ca": Annotated[str | None, _flag("ca", "The consortium's CA certificate.")],
    "cert": Annotated[str | None, _flag("cert", "The certificate: an operator's, or for `run audit` a participant's.")],
    "key": Annotated[str | None, _flag("key", "Its private key.")],
    "config": Annotated[Path | None, _flag("config", "TOML file with these keys.", envvar="DCFPCA_CONFIG")],
}


def operates(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the connection's flags; it is called with a connected `Operator` as its first argument."""

    def with_operator(settings: Settings, /, **given: Any) -> None:
        with connected(settings) as operator:
            command(operator, **given)

    return _flagged(command, with_operator)


def configured(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the connection's flags; it is called with their `Settings`, before anything is dialled."""
    return _flagged(command, command)


def _flagged(command: Callable[..., None], call: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    flags = [inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in _FLAGS.items()]

    @functools.wraps(command)
    def with_connection(**given: Any) -> None:
        config = given.pop("config")
        settings = connect_settings({key: given.pop(key) for key in _KEYS}, config)
        call(settings, **given)

    parameters = [parameter.replace(kind=keyword) for parameter in own] + flags
    shown: Any = with_connection
    shown.__signature__ = signature.replace(parameters=parameters)
    shown.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_connection
