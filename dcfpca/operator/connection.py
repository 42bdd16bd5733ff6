"""The operator's connection: settings from flags and a config file, and channels over mutual TLS, with failover."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc

from dcfpca.config_file import read_toml
from dcfpca.errors import BadInput
from dcfpca.operator.client import Operator, explain
from dcfpca.pki.credential_files import Credentials, load_credentials
from dcfpca.wire.addresses import Address, TlsFiles

CONNECTION_KEYS = ("aggregator", "ca", "cert", "key")
_FILE_KEYS = (*CONNECTION_KEYS, "proxy")
_EXAMPLE = 'aggregator = "HOST:PORT", ca = "ca.crt", cert = "me.crt", key = "me.key"'
# A watch may be silent for as long as a round takes; keepalive stops NATs and proxies from dropping it.
_CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    # The time for one attempt: TCP and TLS over a slow line or with a busy aggregator take seconds.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 3_000),
    # An aggregator that was moved, or restarted as a container, comes back under another address.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.max_receive_message_length", 64 << 20),
)


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The aggregator's address, those of its standbys, and the files that prove who connects."""

    address: Address
    files: TlsFiles
    standbys: tuple[Address, ...] = ()

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Every address, in the order in which they are tried."""
        return (self.address, *self.standbys)


def connect_settings(flags: dict[str, str | None], config: Path | None) -> ConnectionSettings:
    """Merge flags over the config file; raises BadInput naming every key that neither has."""
    merged = _read_config(config) if config else {}
    merged |= {key: value for key, value in flags.items() if value is not None}
    missing = [key for key in CONNECTION_KEYS if not merged.get(key)]
    if missing:
        flags_text = " ".join(f"--{key}" for key in missing)
        hint = f"give {flags_text}, or a file with {_EXAMPLE} by --config or DCFPCA_CONFIG"
        raise BadInput(f"the connection to the aggregator lacks: {', '.join(missing)}", hint)
    files = TlsFiles(*(Path(merged[key]) for key in ("ca", "cert", "key")))
    address, *standbys = Address.parse_all(merged["aggregator"], merged.get("proxy", ""))
    return ConnectionSettings(address, files, tuple(standbys))


def _read_config(path: Path) -> dict[str, str]:
    """The connection keys at top level or under [operator], or those of a participant's configuration."""
    content = read_toml(path, "the config", "--config or DCFPCA_CONFIG", f"write {_EXAMPLE}, one per line")
    if isinstance(content.get("identity"), dict):
        content = _of_participant(content)
    section = content.pop("operator", {})
    keys = content | section if isinstance(section, dict) else content | {"operator": section}
    return {key: _value(path, key, value) for key, value in keys.items()}


def _of_participant(content: dict[str, Any]) -> dict[str, Any]:
    """A site's own configuration serves too: same aggregator, the participant's certificate."""
    aggregator = content.get("aggregator")
    table = aggregator if isinstance(aggregator, dict) else {"address": aggregator}
    keys = {key: content["identity"][key] for key in ("ca", "cert", "key") if key in content["identity"]}
    found = {"aggregator": table.get("address"), "proxy": table.get("proxy"), **keys}
    return {key: value for key, value in found.items() if value is not None}


def _value(path: Path, key: str, value: object) -> str:
    if key not in _FILE_KEYS:
        raise BadInput(f"{path}: there is no key {key!r}", f"the keys are {', '.join(_FILE_KEYS)}")
    if not isinstance(value, str):
        raise BadInput(f"{path}: {key} must be text in quotes, not {value!r}", f"write {_EXAMPLE}, one per line")
    return value if key in ("aggregator", "proxy") else str(path.parent / value)


@contextmanager
def connected(settings: ConnectionSettings) -> Iterator[Operator]:
    """Check the certificate, open the channel, and turn gRPC errors into ours. Any role may connect; calls check it."""
    files = settings.files
    own = load_credentials(files.ca, files.cert, files.key, now=datetime.now(UTC))
    with serving_channel(settings, own) as channel, explained(settings, channel):
        yield Operator(channel, settings.address, own.identity)


@contextmanager
def explained(settings: ConnectionSettings, channel: object = None) -> Iterator[None]:
    """Turn gRPC errors of calls in this context into DcfpcaErrors; a failover channel knows which address it was."""
    try:
        yield
    except grpc.RpcError as error:
        raise explain(error, getattr(channel, "address", settings.address), settings.files) from error


def serving_channel(settings: ConnectionSettings, own: Credentials) -> grpc.Channel | FailoverChannel:
    """A channel to the aggregator, or to whichever of several serves."""
    if settings.standbys:
        return FailoverChannel(settings.addresses, lambda address: channel_to(address, own))
    return channel_to(settings.address, own)


def channel_to(address: Address, own: Credentials) -> grpc.Channel:
    """A channel over mutual TLS."""
    tls = grpc.ssl_channel_credentials(own.ca_pem, own.key_pem, own.cert_pem)
    return grpc.secure_channel(str(address), tls, options=(*_CHANNEL_OPTIONS, address.channel_option))


T = TypeVar("T")

PATIENCE_SECONDS = 12.0
"""How long a call is tried at all addresses in turn: longer than a takeover takes."""
PAUSE_SECONDS = 0.3


class FailoverChannel:
    """Makes each call at the address that served last, and moves to the next while calls are answered UNAVAILABLE.

    A stream that breaks after its first message is not resumed here; the caller knows how. Repeating a
    call is safe, because every call of the protocol may be repeated. It has the two methods of a channel that the
    operator's stub uses; gRPC's own failover does not do, as a standby accepts connections and refuses calls.
    """

    def __init__(self, addresses: Sequence[Address], dial: Callable[[Address], grpc.Channel]) -> None:
        self._turn = itertools.cycle(addresses)
        self._dial = dial
        self.address = next(self._turn)
        self._channel = dial(self.address)

    def unary_unary(self, method: str, *codec: Any, **more: Any) -> Any:
        """A call with one answer."""

        def call(request: Any, timeout: float | None = None) -> Any:
            return self._where_served(lambda: self._channel.unary_unary(method, *codec, **more)(request, timeout))

        return call

    def unary_stream(self, method: str, *codec: Any, **more: Any) -> Any:
        """A call with a stream of answers."""

        def call(request: Any, timeout: float | None = None) -> Iterator[Any]:
            return self._where_served(
                lambda: _begun(self._channel.unary_stream(method, *codec, **more)(request, timeout))
            )

        return call

    def _where_served(self, call: Callable[[], T]) -> T:
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return call()
            except grpc.RpcError as error:
                unavailable = isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNAVAILABLE
                if not unavailable or time.monotonic() > end:
                    raise
            self._go_on()
            time.sleep(PAUSE_SECONDS)

    def _go_on(self) -> None:
        self._channel.close()
        self.address = next(self._turn)
        self._channel = self._dial(self.address)

    def close(self) -> None:
        """Close the present connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _begun(stream: Any) -> Iterator[Any]:
    """The stream, once its first message has arrived; raises the error that came instead of it."""
    first = list(itertools.islice(stream, 1))
    return itertools.chain(first, stream)
