"""Methods are found by name, and one may have a reader of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from grpc import aio

from aggregator.rpc.server import NamedMethods
from dcfpca.v1 import rounds_pb2, rounds_pb2_grpc
from dcfpca.v1.types_pb2 import Receipt


class Servicer(rounds_pb2_grpc.RoundServiceServicer):
    async def SubmitWhole(self, request: Any, context: Any) -> Receipt:  # noqa: N802
        return Receipt(reason=request)

    async def Complain(self, request: Any, context: Any) -> Receipt:  # noqa: N802
        return Receipt(reason=request.sentence)


def test_a_method_is_called_with_what_its_own_reader_reads() -> None:
    async def served() -> tuple[str, str]:
        server = aio.server()
        methods: Any = NamedMethods(server, {"SubmitWhole": lambda body: f"{len(body)} bytes"})
        rounds_pb2_grpc.add_RoundServiceServicer_to_server(Servicer(), methods)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            raw = channel.unary_unary("/dcfpca.v1.RoundService/SubmitWhole", None, Receipt.FromString)
            whole: Receipt = await raw(b"12345")
            stub: Any = rounds_pb2_grpc.RoundServiceStub(channel)
            other: Receipt = await stub.Complain(rounds_pb2.ComplainRequest(sentence="no"))
        await server.stop(None)
        return whole.reason, other.reason

    assert asyncio.run(served()) == ("5 bytes", "no")


def test_no_method_is_registered_one_by_one() -> None:
    class Recorder:
        def __init__(self) -> None:
            self.generic: list[Any] = []

        def add_generic_rpc_handlers(self, handlers: tuple[Any, ...]) -> None:
            self.generic += handlers

    server: Any = Recorder()
    methods: Any = NamedMethods(server, {})
    rounds_pb2_grpc.add_RoundServiceServicer_to_server(Servicer(), methods)
    assert [type(one) for one in server.generic] == [type(grpc.method_handlers_generic_handler("s", {}))]
