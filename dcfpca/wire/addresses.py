"""Addresses, host:port, to dial or to listen on; and why the aggregator at one of them cannot be reached.

gRPC only reports UNAVAILABLE, so `diagnose` tries DNS, TCP and TLS one after the other.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from dcfpca.errors import BadIdentity, BadInput, DcfpcaError, Unreachable
from dcfpca.wire.proxies import CHECK_PROXY, HttpProxy, proxy_for

# Codes of OpenSSL's X509_V_ERR_*, which the ssl module reports by number only.
_EXPIRED = 10
_NOT_YET_VALID = 9
_UNKNOWN_ISSUER = {2, 18, 19, 20, 21}
_WRONG_HOST = {62, 64}

_WRITE = "write it as HOST:PORT, such as aggregator.example.org:8443 or [2001:db8::7]:8443"

# How long to wait for the aggregator to refuse our certificate: under TLS 1.3 it does so after the handshake.
_REFUSAL_SECONDS = 1.0

_SHAPE = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:\s/,\[\]]+):([0-9]{1,9})")
_LARGEST_PORT = 65535
_EXAMPLE = "it must be host:port, such as aggregator.example.org:7443"


def listening(text: str) -> str:
    """Returns a valid host:port to listen on; port 0 takes a free one. ValueError says what is wrong."""
    return _checked(text, _EXAMPLE, least=0)


def listening_or_none(text: str) -> str:
    """The same, or an empty text."""
    return listening(text) if text else text


def dialled(text: str) -> str:
    """Returns a valid host:port to dial."""
    return _checked(text, _EXAMPLE, least=1)


def all_dialled(text: str) -> str:
    """The same, or several with commas between them: an aggregator and its standby."""
    for part in text.split(","):
        _checked(part.strip(), f"{_EXAMPLE}, or several with commas between", least=1)
    return text


def _checked(text: str, otherwise: str, least: int) -> str:
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise ValueError(otherwise)
    if not least <= int(found[2]) <= _LARGEST_PORT:
        raise ValueError(f"the port {found[2]} must be between {least} and {_LARGEST_PORT}")
    return text


@dataclass(frozen=True, slots=True)
class Address:
    """The aggregator's host and port, and the proxy through which it is dialled."""

    host: str
    port: int
    proxy: HttpProxy | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, proxy: str = "") -> Address:
        """Read HOST:PORT, [IPv6]:PORT included; without `proxy`, the environment's applies."""
        try:
            dialled(text)
        except ValueError as error:
            raise BadInput(f"{text!r} is not the address of an aggregator: {error}", _WRITE) from None
        name, _, port = text.rpartition(":")
        host = name.removeprefix("[").removesuffix("]")
        try:
            return cls(host, int(port), proxy_for(host, proxy))
        except ValueError as error:
            raise BadInput(f"the HTTP proxy is not usable: {error}", "correct `proxy`, or https_proxy") from None

    @classmethod
    def parse_all(cls, text: str, proxy: str = "") -> tuple[Address, ...]:
        """Read HOST:PORT, or several with commas between them: an aggregator and its standby."""
        return tuple(cls.parse(part.strip(), proxy) for part in text.split(","))

    @property
    def channel_option(self) -> tuple[str, str | int]:
        """What makes a gRPC channel take the same way as `dial`."""
        return ("grpc.http_proxy", self.proxy.url) if self.proxy else ("grpc.enable_http_proxy", 0)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The CA certificate, own certificate and private key for mutual TLS."""

    ca: Path
    cert: Path
    key: Path


def diagnose(address: Address, files: TlsFiles, seconds: float = 3.0) -> DcfpcaError | None:
    """The error of the first layer that fails; None if all of them work."""
    try:
        with dial(address, seconds) as raw:
            handshake(raw, address, files)
    except DcfpcaError as error:
        return error
    return None


def dial(address: Address, seconds: float) -> socket.socket:
    """An open TCP connection, through the proxy if there is one; Unreachable says why there is none."""
    if address.proxy is None:
        return dial_directly(address, seconds)
    try:
        raw = dial_directly(Address(address.proxy.host, address.proxy.port), seconds)
    except Unreachable as error:
        raise Unreachable(f"the proxy {address.proxy} cannot be reached: {error}", CHECK_PROXY) from None
    try:
        address.proxy.connect(raw, str(address))
    except OSError as error:
        raw.close()
        raise Unreachable(f"the proxy {address.proxy} did not open a tunnel: {error}", CHECK_PROXY) from None
    except Unreachable:
        raw.close()
        raise
    return raw


def dial_directly(address: Address, seconds: float) -> socket.socket:
    """An open TCP connection to exactly this address."""
    try:
        return socket.create_connection((address.host, address.port), timeout=seconds)
    except socket.gaierror:
        raise Unreachable(
            f"the host name {address.host!r} cannot be resolved", "check the spelling of --aggregator and the DNS"
        ) from None
    except ConnectionRefusedError:
        hint = "check host and port, or start the aggregator with `dcfpca-aggregator serve`"
        raise Unreachable(f"nothing listens at {address}", hint) from None
    except TimeoutError:
        hint = "a firewall may drop the packets; ask its administrator to allow this port"
        raise Unreachable(f"{address} did not answer within {seconds:g} s", hint) from None
    except OSError as error:
        raise Unreachable(f"{address} cannot be reached: {error.strerror}", "check the network") from None


def handshake(raw: socket.socket, address: Address, files: TlsFiles) -> bytes:
    """Set up mutual TLS as gRPC does; returns the certificate (DER) that the aggregator presents, or raises why not."""
    context = ssl.create_default_context(cafile=str(files.ca))
    context.load_cert_chain(str(files.cert), str(files.key))
    context.set_alpn_protocols(["h2"])
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        with context.wrap_socket(raw, server_hostname=address.host) as secured:
            secured.settimeout(_REFUSAL_SECONDS)
            _await_greeting(secured, address)
            return cast(bytes, secured.getpeercert(binary_form=True))
    except ssl.SSLCertVerificationError as error:
        raise _untrusted_server(error, address, files) from None
    except ssl.SSLError as error:
        raise _refused_by_server(error, address) from None
    except OSError:
        hint = "check that it is an aggregator; a proxy in between must pass TLS through"
        raise Unreachable(f"{address} closed the connection during the TLS handshake", hint) from None


def _await_greeting(secured: ssl.SSLSocket, address: Address) -> None:
    """A gRPC server that accepts our certificate sends the first bytes; one that refuses it closes the connection."""
    with contextlib.suppress(TimeoutError):
        if not secured.recv(1):
            hint = "use one that the aggregator's own consortium CA has signed, and that is neither expired nor revoked"
            raise BadIdentity(f"the aggregator at {address} refused this certificate", hint)


def _untrusted_server(error: ssl.SSLCertVerificationError, address: Address, files: TlsFiles) -> DcfpcaError:
    """The reason for which our side rejects the aggregator's certificate."""
    if error.verify_code in _WRONG_HOST:
        hint = f"connect by a name in its certificate, or have one issued with `--host {address.host}`"
        return BadIdentity(f"the aggregator's certificate is not for the host {address.host!r}", hint)
    if error.verify_code == _EXPIRED:
        hint = "have it renewed with `dcfpca certs renew aggregator …`; the aggregator loads it without a restart"
        return BadIdentity("the aggregator's certificate has expired", hint)
    if error.verify_code == _NOT_YET_VALID:
        return BadIdentity("the aggregator's certificate is not valid yet", "check the clocks of both machines")
    if error.verify_code in _UNKNOWN_ISSUER:
        hint = "name the ca.crt of your consortium (--ca, or `ca` in the configuration), and check the address"
        return BadIdentity(f"the certificate of {address} was not issued by the CA in {files.ca}", hint)
    return BadIdentity(f"the aggregator's certificate cannot be verified: {error.verify_message}")


def _refused_by_server(error: ssl.SSLError, address: Address) -> DcfpcaError:
    """The reason for which the aggregator rejects our certificate, or that it does not speak TLS."""
    reason = (error.reason or "").upper()
    if "UNKNOWN_CA" in reason or "CERTIFICATE_UNKNOWN" in reason or "BAD_CERTIFICATE" in reason:
        hint = "use a certificate that the aggregator's own consortium CA has signed"
        return BadIdentity(f"the aggregator at {address} does not trust the CA of this certificate", hint)
    if "EXPIRED" in reason:
        return BadIdentity("the aggregator reports that this certificate has expired", "renew it; check both clocks")
    if "WRONG_VERSION_NUMBER" in reason or "HTTP" in reason:
        return Unreachable(f"what listens at {address} does not speak TLS", "check the port")
    if "PROTOCOL_VERSION" in reason:
        hint = "TLS 1.3 is required, and a proxy in between must pass it through"
        return Unreachable(f"what listens at {address} does not speak TLS 1.3", hint)
    if "EOF" in reason:
        return Unreachable(
            f"{address} closed the connection during the TLS handshake", "check that it is an aggregator"
        )
    return BadIdentity(f"the TLS handshake with {address} failed: {reason or error}", "try `dcfpca doctor`")
