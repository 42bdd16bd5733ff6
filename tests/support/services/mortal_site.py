"""A participant that dies at one of its writes, or whose disk fails: `python -m tests.support.services.mortal_site …`.

`DCFPCA_TEST_DIES_AT` says at which, counted from 1 over all that it does to files itself: a `pwrite` and the file
of a step are cut off half way, a sync, a rename or a removal is not done any more. `DCFPCA_TEST_DIES_OF` is the number
of the error that the call raises instead, if any.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from typing import Any, BinaryIO

from participant.main import main
from participant.state import step_files

DIES_AT, DIES_OF = "DCFPCA_TEST_DIES_AT", "DCFPCA_TEST_DIES_OF"
FAILED = "a write fails now"


def _mortal(last: int, error: int) -> None:
    numbers = count(1)

    def is_last() -> bool:
        return next(numbers) == last

    def die() -> None:
        if error:
            sys.stderr.write(f"{FAILED}\n")
            raise OSError(error, os.strerror(error))
        os.kill(os.getpid(), signal.SIGKILL)

    def before(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if is_last():
                die()
            return real(*arguments, **named)

        setattr(os, name, call)

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        if is_last():
            written(descriptor, data[: len(data) // 2], offset)
            die()
        return written(descriptor, data, offset)

    def write_arrays(file: BinaryIO, arrays: step_files.Arrays) -> None:
        if is_last():
            file.write(b"cut off")
            file.flush()
            die()
        write_whole(file, arrays)

    written, os.pwrite = os.pwrite, pwrite  # type: ignore[assignment]
    write_whole, step_files.write_arrays = step_files.write_arrays, write_arrays
    for name in ("fsync", "fdatasync", "ftruncate", "replace", "rename", "unlink"):
        before(name)


if __name__ == "__main__":
    _mortal(int(os.environ[DIES_AT]), int(os.environ[DIES_OF]))
    main()
