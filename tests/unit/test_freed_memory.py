"""Freed memory is kept for the next message, and garbage is not looked for among the calls in progress."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
if sys.argv[1] == "keep":
    from dcfpca.freed_memory import keep_freed_memory
    keep_freed_memory()
def messages(count):
    for _ in range(count):
        [b"x" * 400_000 for _ in range(10)]
messages(5)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
messages(50)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


RETURNING = """
import sys
from pathlib import Path
from dcfpca.freed_memory import keep_freed_memory, return_freed_memory
keep_freed_memory()
messages = [b"x" * 400_000 for _ in range(100)]
del messages
if sys.argv[1] == "return":
    return_freed_memory()
print(int(Path("/proc/self/statm").read_text().split()[1]))
"""


COLLECTING = """
import gc, sys
from dcfpca.freed_memory import collect_garbage_rarely
if sys.argv[1] == "rarely":
    collect_garbage_rarely()
collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase) if phase == "start" else None)
calls = [[] for _ in range(9000)]
print(len(collections))
"""


def printed_by(program: str, word: str) -> int:
    ended = subprocess.run([sys.executable, "-c", program, word], capture_output=True, text=True, check=True)
    return int(ended.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_the_memory_of_a_message_is_not_mapped_again_for_the_next() -> None:
    assert printed_by(PROGRAM, "keep") < printed_by(PROGRAM, "return") / 10


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_the_memory_of_messages_goes_back_when_no_more_are_expected() -> None:
    assert printed_by(RETURNING, "keep") - printed_by(RETURNING, "return") > 30_000_000 // 4096


def test_thousands_of_open_calls_are_not_searched_for_garbage() -> None:
    assert printed_by(COLLECTING, "rarely") == 0
    assert printed_by(COLLECTING, "as ever") > 2
