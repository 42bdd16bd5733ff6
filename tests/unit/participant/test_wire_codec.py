"""Assignments from a hostile aggregator: decoded or refused, never a crash, never a path out of the directory."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from dcfpca.errors import BadMessage
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.receipt import Fate
from participant.wire_codec import decode, fate_of


@pytest.mark.parametrize("run_id", ["", "../x", "a/b", ".hidden", "a*", "x" * 65, "run 1", "a\n", "ü"])
def test_a_run_name_that_could_leave_the_directory_is_refused(run_id: str) -> None:
    with pytest.raises(BadMessage, match="name of a run"):
        decode(pb.Assignment(run_id=run_id, standby=pb.Standby(reason="x")))


def test_an_assignment_with_two_runs_is_refused() -> None:
    ref = types.RoundRef(run_id="run-2", round=1, attempt=1)
    with pytest.raises(BadMessage, match="about another"):
        decode(pb.Assignment(run_id="run-1", round_opened=pb.RoundOpened(ref=ref)))


def test_an_unknown_assignment_is_refused() -> None:
    with pytest.raises(BadMessage, match="does not know"):
        decode(pb.Assignment(run_id="run-1"))


def test_names_that_are_no_names_are_refused() -> None:
    ref = types.RoundRef(run_id="run-1", round=1, attempt=1)
    with pytest.raises(BadMessage, match="cannot be the name"):
        decode(pb.Assignment(run_id="run-1", round_opened=pb.RoundOpened(ref=ref, cohort=["../x"])))


def test_an_unset_fate_is_refused() -> None:
    with pytest.raises(BadMessage):
        fate_of(types.Receipt())
    assert fate_of(types.Receipt(fate=types.FATE_LATE)) is Fate.LATE


@given(st.binary(max_size=400))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    assignment = pb.Assignment()
    try:
        assignment.ParseFromString(data)
        decode(assignment)
    except (BadMessage, DecodeError):
        return


@given(st.sampled_from([field.name for field in pb.Assignment.DESCRIPTOR.oneofs[0].fields]), st.binary(max_size=200))
def test_any_content_of_any_kind_of_assignment_is_decoded_or_refused(kind: str, data: bytes) -> None:
    assignment = pb.Assignment(run_id="run-1")
    inner = getattr(assignment, kind)
    inner.SetInParent()
    try:
        inner.MergeFromString(data)
        decode(assignment)
    except (BadMessage, DecodeError):
        return
