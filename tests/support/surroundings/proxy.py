"""A TCP proxy on loopback that can be slow, cut and healed: the network between a participant and the aggregator."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class Proxy:
    """Forwards every connection to the target; `cut` breaks all of them and turns new ones away until `heal`.

    After `stall_after` bytes towards the target nothing more goes there until the cut: `stalled` says when.
    """

    def __init__(self, target: str, stall_after: int | None = None, delay: float = 0.0) -> None:
        self.lead_to(target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._all: list[socket.socket] = []
        self._pumps: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_cut = self.swallows = False
        self._stall_after, self._delay = stall_after, delay
        self.sent = 0
        self.stalled, self._was_cut, self._passes = threading.Event(), threading.Event(), threading.Event()
        self._passes.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, target: str) -> None:
        """New connections go there; those that are open stay."""
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))

    def cut(self) -> None:
        """Break every connection and let none through."""
        with self._lock:
            self._is_cut, self._stall_after = True, None
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._was_cut.set()

    def stall(self) -> None:
        """From now on nothing more goes towards the target until the cut; the other way is open."""
        with self._lock:
            self._stall_after = 0

    def swallow(self) -> None:
        """From now on take whatever comes, and pass nothing on: no end learns of it."""
        self.swallows = True

    def hold(self) -> None:
        """From now on keep whatever comes, in both directions, and pass it on when healed: a network that stalls."""
        self._passes.clear()

    def heal(self) -> None:
        """Let connections through again."""
        with self._lock:
            self._is_cut = self.swallows = False
        self._passes.set()

    def close(self) -> None:
        self.cut()
        self._passes.set()
        self._listener.close()
        for pump in self._pumps:
            pump.join(5)
        for end in self._all:
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                refused = self._is_cut
            if refused:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._all += [client, server]
            with self._lock:
                self._pairs.add((client, server))
            for ways in ((client, server, True), (server, client, False)):
                self._pumps.append(threading.Thread(target=self._pump, args=ways, daemon=True))
                self._pumps[-1].start()

    def _pump(self, source: socket.socket, sink: socket.socket, upwards: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if upwards and self._count(len(data)):
                    self.stalled.set()
                    self._was_cut.wait()
                    break
                time.sleep(self._delay)
                self._passes.wait()
                if not self.swallows:
                    sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _count(self, size: int) -> bool:
        with self._lock:
            self.sent += size
            return self._stall_after is not None and self.sent >= self._stall_after
