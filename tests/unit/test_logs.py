"""Log lines as JSON that every reader accepts."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from dcfpca import logs


def refuse(word: str) -> Any:
    raise AssertionError(f"{word} is no JSON")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_cannot_write_is_null(value: float) -> None:
    told = io.StringIO()
    logs.setup("json", "info", told)
    logs.log("consensus_reached", change=value, rank=2, reason="line\nbreak")
    line = json.loads(told.getvalue(), parse_constant=refuse)
    assert (line["change"], line["rank"]) == (None, 2)
