"""What an operator is told to expect of a private run before it is proposed, and when it is not proposed."""

from __future__ import annotations

from typing import Any

import pytest

from dcfpca.errors import Refused
from dcfpca.operator.proposals import expected_error
from dcfpca.spec import RunSpec
from dcfpca.v1 import admin_pb2 as pb

SITES = [pb.ParticipantView(name=name, state="connected", rows=1000) for name in "abcd"]


def proposed(rows: int = 1000, **privacy: Any) -> RunSpec:
    keys = {"rows": rows, "rank": 10, "privacy": {"epsilon": 1.0} | privacy}
    return RunSpec.model_validate(keys)


def test_the_error_is_said_from_an_order_of_magnitude_of_columns() -> None:
    said = expected_error(proposed(), 1e5, SITES)
    assert said.startswith("at ε = 1 with about 1e+05 columns expect sin θ ≈ 0.")
    assert "\n" not in said


def test_more_conspirators_cost_accuracy_and_more_columns_give_it() -> None:
    def error(columns: float, conspirators: int) -> float:
        said = expected_error(proposed(conspirators=conspirators, max_error=1.0), columns, SITES)
        return float(said.split("≈ ")[1].split(" ")[0])

    assert error(1e5, 2) > error(1e5, 0)
    assert error(1e6, 0) < error(1e5, 0)


def test_an_error_above_the_limit_is_refused_and_the_operator_can_raise_it() -> None:
    with pytest.raises(Refused, match=r"expect sin θ ≈ \S+, above the \S+ that the spec allows") as told:
        expected_error(proposed(), 1e3, SITES)
    assert "max_error" in (told.value.hint or "")
    assert "expect sin θ ≈ 1" in expected_error(proposed(max_error=1.0), 1e3, SITES)


def test_rows_are_taken_from_the_connected_sites() -> None:
    assert expected_error(proposed(rows=0), 1e5, SITES) == expected_error(proposed(), 1e5, SITES)


def test_nothing_is_predicted_for_a_run_without_privacy() -> None:
    assert expected_error(RunSpec.model_validate({"rows": 1000, "rank": 10}), 1e3, SITES) == ""


def test_without_an_order_of_magnitude_it_says_what_decides() -> None:
    assert "--columns" in expected_error(proposed(), None, SITES)
    assert "noisy count" in expected_error(proposed(), None, SITES)
    assert "--rows" in expected_error(proposed(rows=0), 1e5, [])
