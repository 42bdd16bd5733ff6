"""Runs a module in another network namespace, as root.

python -m benchmarks.rounds.network_namespace NAME MODULE WORDS…
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys

_NETWORK = 0x40000000  # CLONE_NEWNET


def enter(name: str) -> None:
    """Move this process into the namespace that `ip netns add` made under this name."""
    handle = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(handle, _NETWORK):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")
    finally:
        os.close(handle)


def main() -> None:
    """Enter the namespace and run the module as if it had been called."""
    _, name, module, *words = sys.argv
    enter(name)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
