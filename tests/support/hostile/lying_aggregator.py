"""An aggregator that says whatever a test wants: RoundService over mutual TLS, with a genuine certificate.

It decides nothing. `tell` puts an assignment on a site's stream, `heard` is everything that sites sent, in order, and
`await_call` waits for more. What sites fetch of runs that are `dripping` comes byte by byte.
`tests.support.hostile.secure_play` makes an honest aggregator of it, whose messages a test changes site by site.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
from google.protobuf.message import Message

from aggregator.config import Server as ServerTable
from aggregator.trust import Trust
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.v1.rounds_pb2_grpc import RoundServiceServicer, add_RoundServiceServicer_to_server
from tests.support.inputs.chunks import chunks
from tests.support.services.federation import Federation

ACCEPTED = types.Receipt(fate=types.FATE_ACCEPTED)
_THREADS = 64
_LOOK_SECONDS = 0.2
PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Heard:
    """One call of a site; `payload` has the bytes of an update."""

    site: str
    call: str
    request: Any
    payload: bytes = field(default=b"", repr=False)


class LyingAggregator(RoundServiceServicer):
    """Listens where the sites of the federation will dial. Use as a context manager, before the sites are added."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.heard: list[Heard] = []
        self.receipt: Callable[[Heard], types.Receipt] = lambda _: ACCEPTED
        self.consensus: dict[tuple[str, int, bool], tuple[types.TensorHeader, bytes]] = {}
        self.sums: dict[tuple[str, int], tuple[pb.SumHeader, bytes]] = {}
        self.sums_for: dict[tuple[str, str, int], tuple[pb.SumHeader, bytes]] = {}
        self.dripping: set[str] = set()
        self._news = threading.Condition()
        self._streams: dict[str, queue.Queue[pb.Assignment | None]] = {}
        self._standing: dict[str, dict[str, pb.Assignment]] = {}
        files = federation.files["agg"]
        table = ServerTable(listen="127.0.0.1:0", ca=files.ca, cert=files.certificate, key=files.key)
        self.trust = Trust(table, frozenset())
        own = self.trust.credentials
        self._server = grpc.server(ThreadPoolExecutor(_THREADS))
        add_RoundServiceServicer_to_server(self, self._server)
        tls = grpc.ssl_server_credentials([(own.key_pem, own.cert_pem)], own.ca_pem, require_client_auth=True)
        self._port = self._server.add_secure_port("127.0.0.1:0", tls)

    def __enter__(self) -> Self:
        self._server.start()
        self.federation.address = f"127.0.0.1:{self._port}"
        return self

    def __exit__(self, *_: object) -> None:
        for stream in list(self._streams.values()):
            stream.put(None)
        self._server.stop(0).wait()

    # What a test says and hears.

    def tell(self, site: str, run_id: str, **what: Message) -> None:
        """Send an assignment now, or as soon as the site connects; it stands until the next one of the same run."""
        assignment = pb.Assignment(run_id=run_id, key=uuid.uuid4().hex, **what)  # type: ignore[arg-type]
        with self._news:
            self._standing.setdefault(site, {})[run_id] = assignment
            if site in self._streams:
                self._streams[site].put(assignment)

    def await_call(
        self, call: str | Iterable[str], site: str, run_id: str, after: int = 0, patience: float = PATIENCE
    ) -> Heard:
        """The first such call of a site in a run, from place `after` of `heard` on; waits for it to come."""
        calls = {call} if isinstance(call, str) else set(call)
        return self.await_heard(
            lambda one: one.site == site and one.call in calls and run_of(one.request) == run_id, after, patience
        )

    def await_heard(self, wanted: Callable[[Heard], bool], after: int = 0, patience: float = PATIENCE) -> Heard:
        """The first call that is wanted, from place `after` of `heard` on."""
        end, seen = time.monotonic() + patience, after
        with self._news:
            while True:
                while seen < len(self.heard):
                    one, seen = self.heard[seen], seen + 1
                    if wanted(one):
                        return one
                left = end - time.monotonic()
                if left <= 0:
                    lately = [(one.site, one.call) for one in self.heard[-12:]]
                    raise AssertionError(f"the call never came; the last ones were {lately}")
                self._news.wait(left)

    def calls(self, call: str, site: str | None = None) -> list[Heard]:
        """Every such call so far."""
        return [one for one in list(self.heard) if one.call == call and site in (None, one.site)]

    # The service.

    def Subscribe(self, request: pb.SubscribeRequest, context: grpc.ServicerContext) -> Iterator[pb.Assignment]:  # noqa: N802
        site = self._caller(context)
        stream: queue.Queue[pb.Assignment | None] = queue.Queue()
        context.send_initial_metadata(())
        with self._news:
            for assignment in self._standing.get(site, {}).values():
                stream.put(assignment)
            self._streams[site] = stream
        self._keep(Heard(site, "Subscribe", request))
        while context.is_active():
            try:
                told_now = stream.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            if told_now is None:
                return
            yield told_now

    def FetchConsensus(  # noqa: N802
        self, request: pb.FetchConsensusRequest, context: grpc.ServicerContext
    ) -> Iterator[types.TensorPart]:
        self._keep(Heard(self._caller(context), "FetchConsensus", request))
        held = self.consensus.get((request.run_id, request.round, request.final))
        if held is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such consensus")
        header, payload = held
        yield types.TensorPart(header=header)
        for chunk in self._pieces(request, payload):
            yield types.TensorPart(chunk=chunk)

    def FetchSum(self, request: pb.FetchSumRequest, context: grpc.ServicerContext) -> Iterator[pb.SumPart]:  # noqa: N802
        site = self._caller(context)
        self._keep(Heard(site, "FetchSum", request))
        held = self.sums_for.get((site, request.run_id, request.round)) or self.sums.get(
            (request.run_id, request.round)
        )
        if held is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such sum")
        header, payload = held
        yield pb.SumPart(header=header)
        for chunk in self._pieces(request, payload):
            yield pb.SumPart(chunk=chunk)

    def _pieces(self, request: Any, payload: bytes) -> Iterator[types.Chunk]:
        """The payload; byte by byte, with a pause after each, in runs that are `dripping`."""
        if request.run_id not in self.dripping:
            yield from chunks(payload, request.offset)
            return
        for place in range(request.offset, len(payload)):
            yield types.Chunk(offset=place, data=payload[place : place + 1])
            time.sleep(_LOOK_SECONDS)

    def SubmitUpdate(self, parts: Iterator[pb.UpdatePart], context: grpc.ServicerContext) -> types.Receipt:  # noqa: N802
        first, payload = next(parts), bytearray()
        for part in parts:
            payload += part.chunk.data
        return self._take(context, "SubmitUpdate", first.header, bytes(payload))

    def SubmitWhole(self, request: pb.WholeUpdate, context: grpc.ServicerContext) -> types.Receipt:  # noqa: N802
        return self._take(context, "SubmitUpdate", request.header, request.data)

    def ExportReconstruction(  # noqa: N802
        self, parts: Iterator[pb.ExportPart], context: grpc.ServicerContext
    ) -> types.Receipt:
        first = next(parts)
        for _ in parts:
            pass
        return self._take(context, "ExportReconstruction", getattr(first, first.WhichOneof("part") or "header"))

    def ResumeUpload(self, request: pb.UpdateHeader, context: grpc.ServicerContext) -> pb.ResumeUploadResponse:  # noqa: N802
        return pb.ResumeUploadResponse(offset=0)

    def FetchRevocationList(  # noqa: N802
        self, request: pb.FetchRevocationListRequest, context: grpc.ServicerContext
    ) -> pb.FetchRevocationListResponse:
        return pb.FetchRevocationListResponse(pem=self.federation.authority.crl_path.read_bytes())

    def _caller(self, context: grpc.ServicerContext) -> str:
        (shown,) = context.auth_context()["x509_pem_cert"]
        return self.trust.caller(bytes(shown)).name

    def _take(self, context: grpc.ServicerContext, call: str, request: Any, payload: bytes = b"") -> types.Receipt:
        one = Heard(self._caller(context), call, request, payload)
        self._keep(one)
        return self.receipt(one)

    def _keep(self, one: Heard) -> None:
        with self._news:
            self.heard.append(one)
            self._news.notify_all()


def run_of(request: Any) -> str:
    """Which run a request is about; empty for those about none."""
    named = getattr(request, "run_id", "")
    return str(named or (request.ref.run_id if hasattr(request, "ref") else ""))


def _recording(call: str) -> Callable[..., types.Receipt]:
    def take(self: LyingAggregator, request: Any, context: grpc.ServicerContext) -> types.Receipt:
        return self._take(context, call, request)

    return take


# Calls that are kept and acknowledged.
for _call in (
    "Respond",
    "AdvertiseRunKey",
    "ShareGroupSecret",
    "ReportMisfit",
    "Complain",
    "ReportProgress",
):
    setattr(LyingAggregator, _call, _recording(_call))
