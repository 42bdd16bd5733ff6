"""An aggregator that is behind its sites takes up what all of them were told, and nothing that one of them says."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aggregator.returned_consensus import ReturnedConsensus
from aggregator.run.backup_recovery import Announced, ShownTicket
from aggregator.run.state import Run
from dcfpca.method_memory import encode_memory
from dcfpca.run_references import AttemptRef
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms

COHORT = ("a", "b", "c")
TERMS = Terms.of(RunSpec(rows=4, rank=1, closing_rounds=False))
RUN = Run(run_id="run-1", created_at=0.0, cohort=COHORT)
PAYLOAD = np.arange(float(TERMS.method.stage("fit").down.size)).tobytes()
MEMORY = encode_memory({"history": np.arange(3.0)})
ANNOUNCED = Announced("fit", b"s" * 32, (6, 20), (), hashlib.sha256(MEMORY).digest())
SHOWN = ShownTicket(AttemptRef("run-1", 7, 1), hashlib.sha256(PAYLOAD).digest(), b"ticket", ANNOUNCED, PAYLOAD, MEMORY)


def test_the_consensus_that_all_members_show_is_taken_from_one_that_has_it_whole() -> None:
    returned = ReturnedConsensus(TERMS)
    assert returned.take(RUN, "a", replace(SHOWN, memory=b"", payload=b""), ()) == "awaited"
    assert returned.take(RUN, "b", replace(SHOWN, memory=encode_memory({"history": np.ones(3)})), {"a"}) == "awaited"
    assert returned.agreed is None
    assert returned.take(RUN, "c", SHOWN, {"a", "b"}) == "agreed"
    assert returned.agreed is not None
    assert (returned.agreed.round, returned.agreed.stage) == (7, "fit")
    assert encode_memory(returned.agreed.memory) == MEMORY
    assert returned.agreed.broadcast.flat().tobytes() == PAYLOAD


def test_members_are_asked_for_the_bytes_once_and_until_one_has_shown_them() -> None:
    """Without the memory, which not every member derives, they are not whole."""
    returned, bare = ReturnedConsensus(TERMS), replace(SHOWN, memory=b"", payload=b"")
    assert not returned.wants("a", replace(bare, announced=None))
    assert returned.wants("a", bare)
    assert not returned.wants("a", bare)
    assert returned.take(RUN, "a", replace(SHOWN, memory=b""), ()) == "awaited"
    assert returned.wants("b", bare)
    assert not returned.wants("b", SHOWN)
    assert returned.take(RUN, "b", SHOWN, ()) == "awaited"
    assert not returned.wants("c", bare)
    assert returned.take(RUN, "c", bare, ()) == "agreed"


def test_bytes_that_are_not_whole_are_not_held_and_whole_ones_are_until_the_run_goes_on() -> None:
    """A member could fill the memory of the aggregator with the former, and take back the latter by connecting anew."""
    returned, bare = ReturnedConsensus(TERMS), replace(SHOWN, memory=b"", payload=b"")
    returned.take(RUN, "a", replace(SHOWN, memory=bytes(1000)), ())
    assert returned.refused() == ("a", bare)
    returned.take(RUN, "b", SHOWN, ())
    returned.take(RUN, "b", bare, ())
    assert returned.take(RUN, "c", bare, ()) == "agreed"


OTHERWISE: list[dict[str, Any]] = [
    {"previous_sum": bytes(32)},
    {"exponents": (5, 20)},
    {"memory_sha256": bytes(32)},
    {"stage": "open"},
]


@pytest.mark.parametrize(
    "lie",
    [
        replace(SHOWN, ref=AttemptRef("run-1", 8, 1)),
        replace(SHOWN, consensus=bytes(32)),
        replace(SHOWN, announced=None),
        *(replace(SHOWN, announced=replace(ANNOUNCED, **other)) for other in OTHERWISE),
    ],
)
def test_one_member_that_shows_something_else_keeps_the_run_where_it_is(lie: ShownTicket) -> None:
    returned = ReturnedConsensus(TERMS)
    returned.take(RUN, "a", SHOWN, ())
    returned.take(RUN, "b", SHOWN, ())
    assert returned.take(RUN, "c", lie, ()) == "apart"
    assert returned.agreed is None


def test_a_member_that_is_connected_and_not_ahead_or_an_outsider_or_false_bytes_bring_nothing_forward() -> None:
    returned = ReturnedConsensus(TERMS)
    assert returned.take(RUN, "z", SHOWN, ()) == "apart"
    assert returned.take(RUN, "a", SHOWN, {"b"}) == "apart"
    forged = replace(SHOWN, payload=PAYLOAD[::-1])
    for name in ("a", "b"):
        assert returned.take(RUN, name, forged, ()) == "awaited"
    assert returned.take(RUN, "c", forged, ()) == "apart"
