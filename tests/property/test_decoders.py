"""Every decoder there is, on damaged input: it reads it or refuses it in a sentence; it never crashes, hangs or swells.

The long form: DCFPCA_FUZZ_CASES=100000 pytest tests/property/test_decoders.py --timeout=7200
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError

from dcfpca.errors import DcfpcaError
from tests.support.hostile.damage import damaged
from tests.support.inputs import decoders_of_files, decoders_of_messages
from tests.support.inputs.decoding import Decoder

CASES = int(os.environ.get("DCFPCA_FUZZ_CASES", "120"))
SEED = int(os.environ.get("DCFPCA_FUZZ_SEED", "1"))
LARGEST = 64 << 20


def peak_memory() -> int:
    """Most resident bytes since it was last asked."""
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    Path("/proc/self/clear_refs").write_text("5")
    return int(peak.split()[1]) * 1024


@pytest.mark.timeout(7200 if CASES > 10_000 else 120)
@pytest.mark.filterwarnings(
    "ignore:Parsed a serial number", "ignore:Attribute's length", "ignore:.*CryptographyDeprecat"
)
@pytest.mark.parametrize(
    "make", [*decoders_of_messages.DECODERS, *decoders_of_files.DECODERS], ids=lambda make: make.__name__
)
def test_damaged_input_is_read_or_refused_in_a_sentence(tmp_path: Path, make: Callable[[Path], Decoder]) -> None:
    decoder, draw = make(tmp_path), random.Random(f"{SEED} {make.__name__}")
    decoder.read(decoder.sound)
    peak_memory()
    refused, before = 0, peak_memory()
    for _ in range(max(30, CASES // decoder.slow)):
        try:
            decoder.read(damaged(draw, decoder.sound))
        except DecodeError:
            refused += 1
        except DcfpcaError as error:
            refused += bool(str(error))
    assert refused > 0
    assert peak_memory() - before < LARGEST
