"""Doctor against a real aggregator, and against each fault on the way to it."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dcfpca.cli.doctor import check_operator
from dcfpca.doctor import CheckResult, Level, worst
from dcfpca.doctor.checks import check_network
from dcfpca.identity import Role, fingerprint
from dcfpca.operator.connection import ConnectionSettings
from dcfpca.pki.ca_directory import create_authority
from dcfpca.pki.credential_files import SiteFiles, issue_credentials, load_credentials
from dcfpca.wire.addresses import Address, TlsFiles
from tests.support.services.service import Service, service


def _files(files: SiteFiles) -> TlsFiles:
    return TlsFiles(files.ca, files.certificate, files.key)


def _examine(files: SiteFiles, host: str, port: int) -> list[CheckResult]:
    own = load_credentials(files.ca, files.certificate, files.key, now=datetime.now(UTC))
    return list(check_network(Address(host, port), _files(files), own))


async def _look(site: Service, files: SiteFiles, host: str = "localhost") -> list[CheckResult]:
    return await asyncio.to_thread(_examine, files, host, site.port)


def _last(findings: list[CheckResult]) -> tuple[str, Level, str]:
    return findings[-1].what, findings[-1].level, findings[-1].sentence


async def test_all_is_well_with_a_real_aggregator(tmp_path: Path) -> None:
    async with service(tmp_path) as site:
        files = site.identity(Role.OPERATOR, "op")
        settings = ConnectionSettings(Address("localhost", site.port), _files(files))
        found = await asyncio.to_thread(lambda: list(check_operator(settings)))
    assert [one.what for one in found] == [
        "certificate", "expiry", "disk", "DNS", "TCP", "TLS", "aggregator", "service", "clock", "version", "operator",
    ]  # fmt: skip
    assert worst([one for one in found if one.what != "disk"]) is Level.OK


async def test_a_name_that_is_not_in_the_certificate_is_told(tmp_path: Path) -> None:
    async with service(tmp_path, hosts=("agg.acme.example",)) as site:
        found = await _look(site, site.identity(Role.PARTICIPANT, "a"))
    assert _last(found) == ("TLS", Level.FAIL, "the aggregator's certificate is not for the host 'localhost'")
    assert "--host localhost" in found[-1].remedy


async def test_a_stranger_to_the_consortium_is_told(tmp_path: Path) -> None:
    stranger = create_authority(tmp_path / "other", "acme", datetime.now(UTC))
    files = issue_credentials(stranger, Role.PARTICIPANT, "a", tmp_path / "stranger", now=datetime.now(UTC), days=3)
    async with service(tmp_path / "real") as site:
        found = await _look(site, files)
    assert (found[-1].what, found[-1].level) == ("TLS", Level.FAIL)
    assert "was not issued by the CA" in found[-1].sentence


async def test_a_revoked_certificate_is_told_by_the_service(tmp_path: Path) -> None:
    async with service(tmp_path) as site:
        files = site.identity(Role.PARTICIPANT, "a")
        own = load_credentials(files.ca, files.certificate, files.key, now=datetime.now(UTC))
        site.trust.revoke(fingerprint(own.certificate))
        found = await _look(site, files)
    assert (found[-1].what, found[-1].level) == ("service", Level.FAIL)
    assert "revoked" in found[-1].sentence


async def test_a_participants_certificate_is_no_operators(tmp_path: Path) -> None:
    async with service(tmp_path) as site:
        files = site.identity(Role.PARTICIPANT, "a")
        settings = ConnectionSettings(Address("localhost", site.port), _files(files))
        found = await asyncio.to_thread(lambda: list(check_operator(settings)))
    assert (found[0].what, found[0].level) == ("certificate", Level.FAIL)
    assert "role participant" in found[0].sentence


@contextmanager
def _rude_service() -> Iterator[int]:
    """A service that answers everybody with a line of HTTP and hangs up; its port."""

    def answer() -> None:
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with peer, suppress(OSError):
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


async def test_a_closed_port_fails_at_tcp_and_another_service_at_tls(tmp_path: Path) -> None:
    async with service(tmp_path) as site:
        files = site.identity(Role.PARTICIPANT, "a")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            closed = taken.getsockname()[1]
        found = await asyncio.to_thread(_examine, files, "127.0.0.1", closed)
        assert _last(found)[:2] == ("TCP", Level.FAIL)
        assert [one.what for one in found] == ["DNS", "TCP"]

        with _rude_service() as port:
            found = await asyncio.to_thread(_examine, files, "127.0.0.1", port)
    assert _last(found)[:2] == ("TLS", Level.FAIL)
    assert found[-2].what == "TCP"


async def test_a_name_that_does_not_resolve_fails_at_dns(tmp_path: Path) -> None:
    async with service(tmp_path) as site:
        files = site.identity(Role.PARTICIPANT, "a")
        found = await asyncio.to_thread(_examine, files, "aggregator.invalid", site.port)
    assert [(one.what, one.level) for one in found] == [("DNS", Level.FAIL)]


async def test_a_clock_that_is_a_minute_behind_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class SlowClock:
        @staticmethod
        def time() -> float:
            return time.time() - 60

    monkeypatch.setattr("dcfpca.doctor.checks.time", SlowClock)
    async with service(tmp_path) as site:
        found = await _look(site, site.identity(Role.PARTICIPANT, "a"))
    finding = next(one for one in found if one.what == "clock")
    assert finding.level is Level.WARN
    assert re.search(r"(59\.\d|60\.\d) s behind", finding.sentence)


async def test_an_aggregator_that_is_not_serving_says_so(tmp_path: Path) -> None:
    async with service(tmp_path) as site:
        await site.server.tell_health(serving=False)
        found = await _look(site, site.identity(Role.PARTICIPANT, "a"))
    finding = next(one for one in found if one.what == "service")
    assert (finding.level, finding.sentence) == (Level.FAIL, "the aggregator reports that it is not serving")
