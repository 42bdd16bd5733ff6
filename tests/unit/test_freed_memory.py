"""Freed memory is kept for the next message, so that it need not be mapped again."""

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


def page_faults(word: str) -> int:
    ended = subprocess.run([sys.executable, "-c", PROGRAM, word], capture_output=True, text=True, check=True)
    return int(ended.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_the_memory_of_a_message_is_not_mapped_again_for_the_next() -> None:
    assert page_faults("keep") < page_faults("return") / 10
