"""A lower bound for any exchange over gRPC: one unary call per site and round, the same bytes, mutual TLS.

`python -m benchmarks.rounds.bare_grpc server …` and `… client …` are the processes that `benchmarks.rounds --raw`
starts. A call carries a site's tensor as raw bytes in a protobuf message; once all sites have called, the server
answers each with the sum, which ends a round. Nothing is checked, hashed, stored or computed from the sum.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
from numpy.typing import NDArray

from dcfpca.scaffold.background import Background, until
from dcfpca.v1.types_pb2 import Chunk

_SERVICE, _METHOD = "dcfpca.Raw", "Exchange"
_UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
_CALL_SECONDS = 120.0


@dataclass(slots=True)
class _Barrier:
    """Adds the vectors of all parties, and answers each with the sum once all have arrived."""

    parties: int
    total: NDArray[np.float64]
    arrived: int = 0
    answer: bytes = b""
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    released: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # of the server's process, when each round was released

    async def meet(self, data: bytes) -> bytes:
        self.total += np.frombuffer(data)
        self.arrived += 1
        gate = self.gate
        if self.arrived == self.parties:
            self.answer = Chunk(data=self.total.tobytes()).SerializeToString()
            self.total[:] = 0.0
            self.arrived, self.gate = 0, asyncio.Event()
            self.released.append(time.monotonic())
            self.cpu.append(time.process_time())
            gate.set()
        await gate.wait()
        return self.answer


def server(directory: Path, ready: Path, times: Path, participants: int, size: int, rounds: int) -> None:
    """Serve until all rounds are done, then write their seconds and CPU to `times`; `ready` gets the port."""
    asyncio.run(_serve(directory, ready, times, participants, size, rounds))


async def _serve(directory: Path, ready: Path, times: Path, participants: int, size: int, rounds: int) -> None:
    barrier = _Barrier(participants, np.zeros(size // 8))

    async def exchange(request: Chunk, context: grpc.aio.ServicerContext[Chunk, bytes]) -> bytes:
        return await barrier.meet(request.data)

    service = grpc.aio.server(options=_UNLIMITED)
    handler = grpc.unary_unary_rpc_method_handler(exchange, Chunk.FromString)
    service.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}),))
    pair = ((directory / "aggregator.key").read_bytes(), (directory / "aggregator.crt").read_bytes())
    tls = grpc.ssl_server_credentials([pair], (directory / "ca.crt").read_bytes(), require_client_auth=True)
    port = service.add_secure_port("127.0.0.1:0", tls)
    await service.start()
    _write(ready, str(port))
    while len(barrier.released) <= rounds:
        await barrier.gate.wait()
    gaps = [after - before for before, after in zip(barrier.released, barrier.released[1:], strict=False)]
    _write(times, json.dumps([gaps, (barrier.cpu[-1] - barrier.cpu[0]) / len(gaps)]))
    await service.stop(grace=5)


def client(directory: Path, name: str, address: str, size: int, rounds: int) -> None:
    """Call once per round, after one call to warm up."""
    tls = grpc.ssl_channel_credentials(
        (directory / "ca.crt").read_bytes(),
        (directory / f"{name}.key").read_bytes(),
        (directory / f"{name}.crt").read_bytes(),
    )
    payload = bytes(size)
    with grpc.secure_channel(address, tls, options=_UNLIMITED) as channel:
        call = channel.unary_unary(f"/{_SERVICE}/{_METHOD}", Chunk.SerializeToString, Chunk.FromString)
        for _ in range(rounds + 1):
            call(Chunk(data=payload), timeout=_CALL_SECONDS)


@dataclass(frozen=True, slots=True)
class BareFigures:
    """The seconds of each round of a bare exchange, and the CPU of its server in one."""

    seconds: tuple[float, ...]
    server_cpu_s: float


def measure_raw(directory: Path, sites: dict[str, Path], size: int, rounds: int) -> BareFigures:
    """What the bare exchange takes. The directories hold the server's and the sites' certificates."""
    homes: dict[str | None, Path] = {None: directory / "raw", **{name: home / "raw" for name, home in sites.items()}}
    for home in homes.values():
        home.mkdir()
    processes = {name: Background(name or "the bare server", home) for name, home in homes.items()}
    ready, times = directory / "raw" / "ready", directory / "raw" / "times"
    numbers = [str(size), str(rounds)]
    try:
        words = ["server", *map(str, (directory, ready, times, len(sites)))]
        processes[None].start(["benchmarks.rounds.bare_grpc", *words, *numbers])
        until(ready.exists, [processes[None]], "the start of the bare server", 60)
        for name, home in sites.items():
            words = ["client", str(home), name, f"127.0.0.1:{ready.read_text()}"]
            processes[name].start(["benchmarks.rounds.bare_grpc", *words, *numbers])
        until(times.exists, [processes[None]], "the bare exchange", 600)
    finally:
        for process in processes.values():
            process.stop()
    gaps, cpu = json.loads(times.read_text())
    return BareFigures(tuple(float(gap) for gap in gaps), float(cpu))


def _write(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)


def main() -> None:
    """The entry point of the server and client processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    roles = parser.add_subparsers(required=True)
    types = {"directory": Path, "ready": Path, "times": Path, "participants": int, "size": int, "rounds": int}
    for role, names in (
        (server, ("directory", "ready", "times", "participants", "size", "rounds")),
        (client, ("directory", "name", "address", "size", "rounds")),
    ):
        arguments = roles.add_parser(role.__name__)
        arguments.set_defaults(role=role)
        for name in names:
            arguments.add_argument(name, type=types.get(name, str))
    given = vars(parser.parse_args())
    given.pop("role")(**given)


if __name__ == "__main__":
    main()
