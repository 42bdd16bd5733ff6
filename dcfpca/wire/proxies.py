"""HTTP proxies between a site and the aggregator: which one applies, and a tunnel through it by CONNECT.

Decided here alone and handed to gRPC as a channel option, so that `doctor` takes the way that the daemon takes.
"""

from __future__ import annotations

import base64
import re
import socket
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from dcfpca.errors import Unreachable

_EXAMPLE = "it must be http://host:port, or http://user:password@host:port"
_SCHEMES = ("grpc", "https", "http")
_LOOPBACK = re.compile(r"localhost|127\..*|::1")
_MOST_BYTES = 16384
_HINTS = {
    403: "ask its administrator to allow CONNECT to this host and port",
    407: 'write proxy = "http://user:password@host:port"; for NTLM or Kerberos, run a local relay such as cntlm',
}
_REFUSED = "check user and password in `proxy`; for NTLM or Kerberos, run a local relay such as cntlm"
_CANNOT_REACH = "check the aggregator's address, and whether the proxy may reach it"
CHECK_PROXY = "check host and port in `proxy` or https_proxy, and whether an HTTP proxy runs there"


@dataclass(frozen=True, slots=True)
class HttpProxy:
    """A proxy; its text leaves out user and password."""

    host: str
    port: int
    url: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def connect(self, raw: socket.socket, target: str) -> None:
        """Ask for a tunnel to `target` on this open connection; Unreachable quotes any answer but success."""
        raw.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{self._authorization()}\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer and len(answer) < _MOST_BYTES:
            if not (more := raw.recv(1)):  # byte by byte: what follows the answer belongs to TLS
                raise Unreachable(f"the proxy {self} closed the connection without an HTTP answer", CHECK_PROXY)
            answer += more
        line = answer.split(b"\r\n", 1)[0].decode("latin-1")
        found = re.match(r"HTTP/\d\.\d (\d{3})", line)
        if found is None or found[1] != "200":
            said = "".join(letter for letter in line[:100] if letter.isprintable())
            status = int(found[1]) if found else 0
            refused = status == 407 and bool(self._authorization())
            hint = _REFUSED if refused else _HINTS.get(status, _CANNOT_REACH if found else CHECK_PROXY)
            raise Unreachable(f"the proxy {self} answered {said!r} to CONNECT {target}", hint)

    def _authorization(self) -> str:
        user, at, _ = urlsplit(self.url).netloc.rpartition("@")
        return f"Proxy-Authorization: Basic {base64.b64encode(unquote(user).encode()).decode()}\r\n" if at else ""


def proxy_url(text: str) -> str:
    """Returns a valid URL of a proxy, or an empty text. ValueError says what is wrong, without quoting a password."""
    if text:
        _parsed(text)
    return text


def proxy_for(host: str, configured: str) -> HttpProxy | None:
    """The configured proxy, or else the environment's; None for hosts in `no_proxy`, which gRPC dials directly."""
    found = getproxies_environment()
    url = configured or next((found[scheme] for scheme in _SCHEMES if scheme in found), "")
    if not url or proxy_bypass(host, found) or (not configured and _LOOPBACK.fullmatch(host)):
        return None
    return _parsed(url if "://" in url else f"http://{url}")


def _parsed(url: str) -> HttpProxy:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(_EXAMPLE) from None
    if parts.scheme != "http" or not host or not port:
        raise ValueError(_EXAMPLE)
    return HttpProxy(host, port, url)
