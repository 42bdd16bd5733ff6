"""Checks of this machine (certificates, directories, disk space), and of the path to the aggregator, layer by layer."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import grpc
from cryptography import x509
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dcfpca.doctor import CheckResult, Level, fail, ok, warn, worst
from dcfpca.errors import DcfpcaError, Unreachable
from dcfpca.identity import Role
from dcfpca.operator.client import explain
from dcfpca.operator.connection import channel_to
from dcfpca.pki.credential_files import Credentials, load_credentials
from dcfpca.pki.trust import SOON_DAYS, parse_certificate, whole_days
from dcfpca.version import __version__
from dcfpca.wire.addresses import Address, TlsFiles, dial, handshake
from dcfpca.wire.constants import PROTOCOL, STANDBY

LOW_SPACE = 1 << 30


def check_credentials(
    ca: Path, cert: Path, key: Path, role: Role, now: datetime
) -> tuple[Credentials | None, list[CheckResult]]:
    """Check that the three files match, their role and expiry; the credentials are None if they cannot be used."""
    try:
        own = load_credentials(ca, cert, key, now=now, role=role)
    except DcfpcaError as error:
        return None, [fail("certificate", error)]
    found = [ok("certificate", f"{own.identity}, its key and the CA belong together")]
    found.append(expiry("expiry", "this certificate", own.certificate, now))
    found += [
        expiry("CA expiry", "the consortium's CA certificate", authority, now)
        for authority in own.authorities
        if whole_days(authority.not_valid_after_utc, now) < SOON_DAYS
    ]
    return own, found


def expiry(what: str, whose: str, certificate: x509.Certificate, now: datetime) -> CheckResult:
    """Warns 14 days before a certificate expires."""
    days = whole_days(certificate.not_valid_after_utc, now)
    until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    remedy = "ask the holder of the CA to renew it (`dcfpca certs renew …`); services load it without a restart"
    if days < 0:
        return fail(what, f"{whose} expired on {until}", remedy)
    if days < SOON_DAYS:
        return warn(what, f"{whose} expires in {days} days, on {until}", remedy)
    return ok(what, f"{whose} is valid for {days} days, until {until}")


def check_directory(what: str, directory: Path, needed: int = 0, purpose: str = "one result") -> Iterator[CheckResult]:
    """Check that a directory can be created or written, and has the `needed` bytes for this purpose free."""
    standing = next(path for path in (directory, *directory.resolve().parents) if path.exists())
    if not standing.is_dir():
        yield fail(what, f"{standing} is not a directory", "name another directory in the configuration")
        return
    if not os.access(standing, os.W_OK | os.X_OK):
        remedy = "grant this user write permission, or name another directory"
        yield fail(what, f"{standing} is not writable for this user", remedy)
        return
    yield _check_space(what, directory, shutil.disk_usage(standing).free, needed, purpose)


def _check_space(what: str, directory: Path, free: int, needed: int, purpose: str) -> CheckResult:
    remedy = "free space there, or name a directory on another disk"
    if free < needed:
        sentence = f"{directory} has {_gigabytes(free)} free, and {_gigabytes(needed)} are needed for {purpose}"
        return fail(what, sentence, remedy)
    if free < max(LOW_SPACE, 3 * needed):
        return warn(what, f"{directory} has only {_gigabytes(free)} free", remedy)
    return ok(what, f"{directory} can be written and has {_gigabytes(free)} free")


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count < 1e10 else f"{count / 1e9:.0f} GB"


SECONDS = 5.0
SKEW_WARN, SKEW_FAIL = 5.0, 240.0
"""Clock differences in seconds. Certificates are backdated by 300, so a larger one makes fresh ones invalid."""


_STANDBY = "standby"


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    """The answer of the health service, with the clock and version from its trailing metadata."""

    serving: bool
    skew: float | None
    version: str
    protocol: int | None
    held: int = 0
    standby_of: str | None = None


def check_aggregators(addresses: Sequence[Address], files: TlsFiles, own: Credentials) -> Iterator[CheckResult]:
    """Check the way to every address. If one serves, another may stand by, and whatever else is wrong is a warning."""
    found = [list(check_network(address, files, own)) for address in addresses]
    good = min((worst(results) for results in found), key=list(Level).index)
    for address, results in zip(addresses, found, strict=True):
        spare = good is not Level.FAIL and worst(results) is Level.FAIL
        for one in results:
            sentence = f"{address}: {one.sentence}" if found[1:] else one.sentence
            if spare and one.level is Level.FAIL:
                yield ok(one.what, sentence) if one.what == _STANDBY else warn(one.what, sentence, one.remedy)
            else:
                yield replace(one, sentence=sentence)


def check_network(address: Address, files: TlsFiles, own: Credentials) -> Iterator[CheckResult]:
    """Check each layer in turn; the first failure ends the checks, as higher layers depend on it."""
    dialled = address.proxy or address  # a proxy resolves the aggregator's name itself
    try:
        found = socket.getaddrinfo(dialled.host, dialled.port, type=socket.SOCK_STREAM)
    except OSError:
        yield fail("DNS", f"the host name {dialled.host!r} cannot be resolved", "check its spelling and the DNS")
        return
    yield ok("DNS", f"{dialled.host} is {', '.join(sorted({str(one[4][0]) for one in found}))}")
    layer = "proxy" if address.proxy else "TCP"
    try:
        raw = dial(address, SECONDS)
    except Unreachable as error:
        yield fail(layer, error)
        return
    yield ok(layer, f"{dialled} opened a tunnel to {address}" if address.proxy else f"{address} accepts connections")
    try:
        with raw:
            presented = parse_certificate(handshake(raw, address, files))
    except DcfpcaError as error:
        yield fail("TLS", error)
        return
    yield ok("TLS", "both sides accept each other's certificate, and the host name matches")
    yield expiry("aggregator", "the aggregator's certificate", presented, datetime.now(UTC))
    yield from _service(address, files, own)


def _service(address: Address, files: TlsFiles, own: Credentials) -> Iterator[CheckResult]:
    with channel_to(address, own) as channel:
        try:
            answer = ask_health(channel)
        except grpc.RpcError as error:
            yield fail("service", explain(error, address, files))
            return
    if answer.standby_of is not None:
        remedy = "give the address of the one that serves, too: both with a comma between, or see why none does"
        yield fail(_STANDBY, f"it is a standby, and {answer.standby_of or 'nobody'} serves", remedy)
        return
    if answer.serving:
        yield ok("service", "the aggregator reports that it is serving")
    else:
        remedy = "see its log: the store cannot be written, its certificate has expired, or it is stopping"
        yield fail("service", "the aggregator reports that it is not serving", remedy)
    if answer.held:
        sentence = f"{answer.held} runs cannot be served: damaged, or written by other software"
        yield warn("runs", sentence, "`dcfpca run list` names them and says why; deploy/RUNBOOK.md says what to do")
    yield check_clock(answer.skew)
    yield check_version(answer.version, answer.protocol)


def ask_health(channel: grpc.Channel) -> HealthAnswer:
    """Call the standard health service; the aggregator adds its clock and version as trailing metadata."""
    stub = health_pb2_grpc.HealthStub(channel)
    began = time.time()
    reply, call = stub.Check.with_call(health_pb2.HealthCheckRequest(), timeout=SECONDS)
    middle = (began + time.time()) / 2
    metadata = {str(key): str(value) for key, value in call.trailing_metadata() or ()}
    clock = metadata.get("dcfpca-time-ms", "")
    protocol = metadata.get("dcfpca-protocol", "")
    return HealthAnswer(
        serving=reply.status == health_pb2.HealthCheckResponse.SERVING,
        skew=int(clock) / 1000 - middle if clock.isdecimal() else None,
        version=metadata.get("dcfpca-version", ""),
        protocol=int(protocol) if protocol.isdecimal() else None,
        standby_of=metadata.get(STANDBY),
        held=int(metadata["dcfpca-runs-held"]) if metadata.get("dcfpca-runs-held", "").isdecimal() else 0,
    )


def check_clock(skew: float | None) -> CheckResult:
    """The difference between the clocks of both machines."""
    if skew is None:
        return warn("clock", "the aggregator did not send its time", "upgrade both sides to the same version")
    remedy = "synchronize both clocks with NTP (chrony or systemd-timesyncd)"
    side = "behind" if skew > 0 else "ahead of"
    sentence = f"this machine's clock is {abs(skew):.1f} s {side} the aggregator's"
    if abs(skew) > SKEW_FAIL:
        return fail("clock", f"{sentence}; fresh certificates will not be valid yet", remedy)
    if abs(skew) > SKEW_WARN:
        return warn("clock", sentence, remedy)
    return ok("clock", f"both clocks agree within {max(abs(skew), 0.1):.1f} s")


def check_version(version: str, protocol: int | None) -> CheckResult:
    """Compare the protocol and software versions of both sides."""
    if protocol is not None and protocol != PROTOCOL:
        side = "this side" if protocol > PROTOCOL else "the aggregator"
        return fail(
            "version", f"the aggregator has protocol version {protocol}, this side {PROTOCOL}", f"upgrade {side}"
        )
    if version and version != __version__:
        sentence = f"the aggregator runs version {version}, this side {__version__}; the protocol is the same"
        return warn("version", sentence, "upgrade the older side when convenient")
    return ok("version", f"both sides run version {__version__}" if version else f"this side runs {__version__}")
