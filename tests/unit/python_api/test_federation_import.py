"""`Federation` is usable as the first thing that a program imports."""

from __future__ import annotations

import os
import subprocess
import sys

from dcfpca.wire import VARIABLE


def test_federation_can_be_imported_first_and_requires_tls_1_3() -> None:
    """In a process of its own: this one has required it before (tests/conftest.py)."""
    source = f"import os; from dcfpca import Federation; print(os.environ['{VARIABLE}'])"
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
