"""What docs/python.md imports from `dcfpca` can be imported first, in any order."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import dcfpca
from dcfpca.wire import VARIABLE


@pytest.mark.parametrize("name", ["Federation", "RobustPCA", "read_result"])
def test_a_name_can_be_the_first_that_a_program_imports(name: str) -> None:
    """`Federation` loads gRPC, of which TLS 1.3 has to be required before."""
    fresh = {key: value for key, value in os.environ.items() if key != VARIABLE}
    subprocess.run([sys.executable, "-c", f"from dcfpca import {name}"], env=fresh, timeout=60, check=True)


def test_every_name_that_is_listed_is_there() -> None:
    assert [name for name in dcfpca.__all__ if not hasattr(dcfpca, name)] == []
