"""Tensors that need many chunks, over connections that break in the middle: nothing is sent twice, nothing is lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from dcfpca.rpca.synthetic import Recipe, generate
from tests.support.services.federation import Federation, relative

NAMES = ("alpha", "beta", "gamma")


class Proxy:
    """Passes bytes through and cuts every connection once so many have gone up; the budget is used up once."""

    def __init__(self, target: str, budget: int) -> None:
        host, _, port = target.rpartition(":")
        self._target, self._left, self.cuts, self.passed = (host, int(port)), budget, 0, 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(self._target)
                threading.Thread(target=self._pass, args=(near, far, True), daemon=True).start()
                threading.Thread(target=self._pass, args=(far, near, False), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, upwards: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
                if upwards and self._is_spent(len(data)):
                    break
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()

    def _is_spent(self, size: int) -> bool:
        self.passed += size
        if self.cuts or self.passed < self._left:
            return False
        self.cuts += 1
        return True

    def close(self) -> None:
        # A blocked accept keeps the socket open; shutting it down ends the wait.
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()


@contextmanager
def federation(root: Path, rows: int, budget: int) -> Iterator[tuple[Federation, Proxy]]:
    problem = generate(Recipe(rows=rows, columns=90, rank=20, counts=(30, 30, 30)), 1)
    with Federation(root) as made:
        made.start_aggregator("info")
        proxy = Proxy(made.address, budget)
        try:
            for name, own in zip(NAMES, problem.sites(), strict=True):
                made.add_site(name, own.array, via=proxy.address if name == "beta" else "")
            made.start_sites(NAMES)
            yield made, proxy
        finally:
            proxy.close()


SPEC: dict[str, Any] = {
    "rank": 20,
    "rounds": 3,
    "tolerance": 0.0,
    "closing_rounds": False,
    "participants": NAMES,
    "round_seconds": 100.0,
}


@pytest.mark.slow
def test_a_masked_upload_cut_in_the_middle_goes_on_where_it_broke(tmp_path: Path) -> None:
    rows = 12_500  # 2 MB a tensor
    with federation(tmp_path, rows, budget=3_200_000) as (made, proxy):
        view = made.finish(made.propose(**SPEC, aggregation="secure"), patience=200.0)
        assert proxy.cuts == 1
        assert all(len(round.survivors) == 3 for round in view.rounds)
        alone = made.simulate(view, NAMES)
        assert relative(made.model(view.run_id), alone.consensus.broadcast.tensor) < 1e-10
        whole = 3 * 8 * rows * 20
        # A megabyte may be lost with the cut, TLS and the small messages cost a little; a repeat would cost two.
        assert proxy.passed < whole + 1_500_000
