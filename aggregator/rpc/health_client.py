"""Client of the health service: asks the aggregator on this machine whether it is serving, for container platforms.

Their own gRPC probes cannot show a client certificate. This client shows the service's own, which is valid for clients.
"""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_address

import grpc
from cryptography import x509
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aggregator.config import Config
from dcfpca.errors import Unreachable
from dcfpca.identity import Role
from dcfpca.pki.credential_files import Credentials, load_credentials
from dcfpca.pki.trust import whole_days
from dcfpca.wire.constants import STANDBY


def probe(config: Config, seconds: float = 5, *, standby_ok: bool = False) -> str:
    """The address that answered SERVING and how long its certificate lasts; raises Unreachable on any other answer.

    With `standby_ok` a standby that waits for its turn is an answer, too.
    """
    files = config.server
    own = load_credentials(files.ca, files.cert, files.key, now=datetime.now(UTC), role=Role.AGGREGATOR)
    address = _local(_listening(config))
    word, metadata = _ask(address, own, seconds)
    if STANDBY in metadata:
        sentence = f"{address} is a standby, and {metadata[STANDBY] or 'nobody'} serves"
        if standby_ok:
            return sentence
        raise Unreachable(sentence, "ask the one that serves, or use --standby-ok")
    held = int(metadata.get("dcfpca-runs-held", "0"))
    if word != health_pb2.HealthCheckResponse.SERVING:
        hint = "its log says why: the store, the certificate, or it is stopping"
        raise Unreachable(f"the aggregator at {address} answers, but says that it is not serving", hint)
    days = whole_days(own.not_after, datetime.now(UTC))
    serving = f"{address} is serving, and its certificate lasts {days} more days"
    return f"{serving}; {held} runs are held, see `dcfpca run list`" if held else serving


def _ask(address: str, own: Credentials, seconds: float) -> tuple[int, dict[str, str]]:
    """What the health service says, and the trailing metadata of its answer."""
    tls = grpc.ssl_channel_credentials(own.ca_pem, own.key_pem, own.cert_pem)
    # Dialled over loopback, which need not be among the names that sites dial, and which no proxy leads to.
    options = [("grpc.ssl_target_name_override", _name(own.certificate)), ("grpc.enable_http_proxy", 0)]
    with grpc.secure_channel(address, tls, options) as channel:
        try:
            request = health_pb2.HealthCheckRequest()
            stub = health_pb2_grpc.HealthStub(channel)
            reply, call = stub.Check.with_call(request, timeout=seconds, wait_for_ready=False)
        except grpc.RpcError as error:
            hint = "is it started, and does it use these certificates? see its log"
            said = error.code().name
            raise Unreachable(f"the aggregator at {address} does not answer the health check ({said})", hint) from None
    return int(reply.status), {str(key): str(value) for key, value in call.trailing_metadata() or ()}


def _listening(config: Config) -> str:
    """host:port of the service; with port 0 only the ready file knows it."""
    listen, ready = config.server.listen, config.telemetry.ready_file
    if listen.endswith(":0") and ready and ready.exists():
        return ready.read_text().strip()
    return listen


def _local(listen: str) -> str:
    """The address to dial, from the same machine, for a service that listens there."""
    host, _, port = listen.rpartition(":")
    bare = host.strip("[]")
    try:
        everywhere = ip_address(bare).is_unspecified
    except ValueError:
        everywhere = False
    if not everywhere:
        return listen
    return f"[::1]:{port}" if ":" in bare else f"127.0.0.1:{port}"


def _name(certificate: x509.Certificate) -> str:
    """A name under which sites dial the service."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = names.get_values_for_type(x509.DNSName)
    return hosts[0] if hosts else str(names.get_values_for_type(x509.IPAddress)[0])
