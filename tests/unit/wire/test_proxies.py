"""Which proxy applies to which aggregator."""

from __future__ import annotations

import socket
from threading import Thread

import pytest

from dcfpca.errors import BadInput, Unreachable
from dcfpca.wire.addresses import Address, dial
from dcfpca.wire.proxies import proxy_for, proxy_url


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_the_configured_proxy_wins_over_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://environment:1")
    assert str(proxy_for("agg.example.org", "")) == "environment:1"
    assert str(proxy_for("agg.example.org", "http://configured:2")) == "configured:2"


def test_the_environment_sends_loopback_and_no_proxy_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "proxy:3128")
    monkeypatch.setenv("no_proxy", ".inside.example")
    assert str(proxy_for("agg.example.org", "")) == "proxy:3128"
    for host in ("localhost", "127.0.0.1", "::1", "agg.inside.example"):
        assert proxy_for(host, "") is None
        assert Address.parse(f"[{host}]:7443" if ":" in host else f"{host}:7443").channel_option == (
            "grpc.enable_http_proxy", 0,
        )  # fmt: skip


@pytest.mark.parametrize("text", ["https://proxy:3128", "http://proxy", "socks5://proxy:1080", "http://proxy:99999"])
def test_what_is_no_http_proxy_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="http://host:port"):
        proxy_url(text)
    with pytest.raises(BadInput, match="HTTP proxy is not usable"):
        Address.parse("agg.example.org:7443", text)


def test_no_text_of_a_proxy_shows_its_password() -> None:
    proxy = proxy_for("agg.example.org", "http://site:secret@proxy:3128")
    assert str(proxy) == "proxy:3128"
    assert "secret" not in repr(proxy)


@pytest.mark.parametrize(
    ("login", "answer", "said", "hint"),
    [
        ("", b"HTTP/1.1 403 Forbidden\r\n\r\n", "403 Forbidden", "allow CONNECT"),
        ("", b"HTTP/1.1 407 Who are you\r\n\r\n", "407 Who are you", "user:password@host:port"),
        ("site:wrong@", b"HTTP/1.1 407 Who are you\r\n\r\n", "407 Who are you", "check user and password"),
        ("", b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "502 Bad Gateway", "whether the proxy may reach it"),
        ("", b"220 mail.example ESMTP\r\n", "without an HTTP answer", "whether an HTTP proxy runs there"),
        ("", b"SSH-2.0\r\n\r\n", "SSH-2.0", "whether an HTTP proxy runs there"),
        ("", b"", "without an HTTP answer", "whether an HTTP proxy runs there"),
    ],
)
def test_the_hint_fits_what_the_proxy_does(login: str, answer: bytes, said: str, hint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            caller = listener.accept()[0]
            with caller:
                caller.recv(4096)
                caller.sendall(answer)

        serving = Thread(target=serve)
        serving.start()
        with pytest.raises(Unreachable, match=said) as raised:
            dial(Address.parse("agg.example.org:7443", f"http://{login}127.0.0.1:{port}"), 20.0)
        serving.join()
    assert hint in str(raised.value.hint)


def test_a_proxy_that_does_not_run_is_named_as_what_is_missing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(Unreachable, match=f"the proxy 127.0.0.1:{port} cannot be reached") as raised:
        dial(Address.parse("agg.example.org:7443", f"http://127.0.0.1:{port}"), 20.0)
    assert "whether an HTTP proxy runs there" in str(raised.value.hint)
