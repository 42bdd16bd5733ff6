"""A line with delay between two network namespaces: passes Ethernet frames between two TAP devices, in order.

    python -m benchmarks.rounds.delaying_hub RULES.json NAMESPACE=IP/PREFIX NAMESPACE=IP/PREFIX

Needs root and /dev/net/tun, and no module of the kernel for delays. RULES.json has `delay_ms` and `rate_kbit`, for each
way, and is read again every 50 ms. Prints READY when the line is up, and ends on SIGTERM.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.rounds.network_namespace import enter

_SET_INTERFACE, _TAP, _NO_HEADER = 0x400454CA, 0x0002, 0x1000  # TUNSETIFF, IFF_TAP, IFF_NO_PI
DEVICE, FRAME, LONGEST_QUEUE_S, READ_AGAIN_S = "eth0", 65535, 1.0, 0.05


@dataclass(slots=True)
class Way:
    """One direction: frames wait here until they are due."""

    source: int
    target: int
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)
    free_at: float = 0.0

    def take(self, delay_s: float, bits_per_s: float) -> None:
        """Queue all frames that have arrived; what a full line would hold for over a second is dropped."""
        with suppress(BlockingIOError):
            while frame := os.read(self.source, FRAME):
                now = time.monotonic()
                begins = max(now, self.free_at)
                if begins - now <= LONGEST_QUEUE_S:
                    self.free_at = begins + (8 * len(frame) / bits_per_s if bits_per_s else 0.0)
                    self.waiting.append((self.free_at + delay_s, frame))

    def pass_on(self) -> float:
        """Hand on the frames that are due; return the seconds until the next one."""
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            with suppress(OSError):  # a device that is not up yet drops frames, as a cable does
                os.write(self.target, self.waiting.popleft()[1])
        return max(self.waiting[0][0] - time.monotonic(), 0.0) if self.waiting else READ_AGAIN_S


def device_in(namespace: str, address: str) -> int:
    """The file of a new TAP device in this namespace, which is up and has this address; the process stays there."""
    enter(namespace)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _SET_INTERFACE, struct.pack("16sH22x", DEVICE.encode(), _TAP | _NO_HEADER))
    for words in (["addr", "add", address, "dev", DEVICE], ["link", "set", DEVICE, "up"], ["link", "set", "lo", "up"]):
        subprocess.run(["ip", *words], check=True)
    return device


def main() -> None:
    """Pass frames on until the process is ended."""
    rules = Path(sys.argv[1])
    one, other = (device_in(*words.split("=")) for words in sys.argv[2:4])
    ways = [Way(one, other), Way(other, one)]
    print("READY", flush=True)
    delay_s = bits_per_s = read_at = 0.0
    while True:
        if time.monotonic() >= read_at:
            with suppress(ValueError):  # while the file is written
                told = json.loads(rules.read_text())
                delay_s, bits_per_s = told.get("delay_ms", 0.0) / 1e3, told.get("rate_kbit", 0.0) * 1e3
            read_at = time.monotonic() + READ_AGAIN_S
        select.select([one, other], [], [], min(way.pass_on() for way in ways))
        for way in ways:
            way.take(delay_s, bits_per_s)


if __name__ == "__main__":
    main()
