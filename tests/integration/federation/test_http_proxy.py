"""Sites behind a real HTTP proxy: runs, doctor, and what is said when the proxy refuses.

The aggregator's name resolves nowhere but at the proxy, so whoever reaches it went through it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dcfpca.identity import Role
from tests.support.services.federation import Federation
from tests.support.services.processes import run_to_end
from tests.support.surroundings.connect_proxy import ConnectProxy

HIDDEN = "aggregator.hidden.invalid"
LOGIN = "site:se cret@1"
IN_A_URL = "site:se%20cret%401"


@pytest.fixture(autouse=True)
def no_proxies_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_proxy", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def _hidden_aggregator(root: Path) -> tuple[Federation, str]:
    """A started aggregator with a certificate for the hidden name, and the address by which sites dial it."""
    federation = Federation(root)
    federation.identity(Role.AGGREGATOR, "agg", hosts=[HIDDEN, "127.0.0.1"], force=True)
    federation.start_aggregator()
    return federation, f"{HIDDEN}:{federation.address.rsplit(':', 1)[1]}"


def _add_site(federation: Federation, name: str, hidden: str, proxy: str) -> None:
    data = np.random.default_rng(len(name)).standard_normal((8, 30))
    federation.add_site(name, data, via=hidden, tables={"aggregator": {"proxy": proxy}} if proxy else None)


def test_a_run_goes_through_the_proxy_by_key_and_by_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation, hidden = _hidden_aggregator(tmp_path)
    with federation, ConnectProxy({hidden: federation.address}, login=LOGIN) as proxy:
        url = f"http://{IN_A_URL}@{proxy.address}"
        _add_site(federation, "a", hidden, url)
        _add_site(federation, "bb", hidden, "")
        federation.start_site("a").await_action("connected")
        monkeypatch.setenv("https_proxy", url)
        federation.start_site("bb").await_action("connected")
        federation.run(participants=["a", "bb"], rank=2, rounds=3, quorum=2)
        assert {answer for _, answer in proxy.asked} == {"200 Connection established"}
        assert {line for line, _ in proxy.asked} == {f"CONNECT {hidden} HTTP/1.1"}


def test_doctor_of_both_commands_follows_the_proxy_and_quotes_its_answer(tmp_path: Path) -> None:
    federation, hidden = _hidden_aggregator(tmp_path)
    with federation, ConnectProxy({hidden: federation.address}, login=LOGIN) as proxy:
        _add_site(federation, "a", hidden, f"http://{IN_A_URL}@{proxy.address}")
        said = federation.site_command("a", "doctor")
        assert f"{proxy.address} opened a tunnel to {hidden}" in _flat(said.stdout)
        assert "the aggregator reports that it is serving" in _flat(said.stdout)

        _add_site(federation, "a", hidden, f"http://site:wrong@{proxy.address}")
        said = federation.site_command("a", "doctor")
        assert said.returncode == 1
        assert f"the proxy {proxy.address} answered 'HTTP/1.1 407 Proxy Authentication Required'" in _flat(said.stdout)
        assert "wrong" not in said.stdout + said.stderr

        files, config = federation.files["op"], tmp_path / "operator.toml"
        config.write_text(
            f'aggregator = "{hidden}"\nca = "{files.ca}"\ncert = "{files.certificate}"\nkey = "{files.key}"\n'
            f'proxy = "http://{IN_A_URL}@{proxy.address}"\n'
        )
        said = run_to_end("dcfpca.cli.main", "participants", "list", "--json", "--config", str(config))
        assert said.returncode == 0, said.stderr


def test_a_daemon_says_what_the_proxy_answered_and_connects_when_it_allows(tmp_path: Path) -> None:
    federation, hidden = _hidden_aggregator(tmp_path)
    with federation, ConnectProxy({}, refusal="403 Forbidden by policy") as proxy:
        _add_site(federation, "a", hidden, f"http://{proxy.address}")
        daemon = federation.start_site("a")
        line = daemon.await_action("unreachable")
        assert "answered 'HTTP/1.1 403 Forbidden by policy' to CONNECT" in str(line)
        proxy.allow({hidden: federation.address})
        daemon.await_action("connected")


def test_a_proxy_that_is_none_is_refused_with_the_form(tmp_path: Path) -> None:
    with Federation(tmp_path) as federation:
        _add_site(federation, "a", f"{HIDDEN}:7443", "https://user:secret@proxy:3128")
        said = federation.site_command("a", "check")
    assert said.returncode == 2
    assert "aggregator.proxy: it must be http://host:port" in _flat(said.stderr)
    assert "secret" not in said.stderr


def _flat(text: str) -> str:
    return " ".join(text.split())
