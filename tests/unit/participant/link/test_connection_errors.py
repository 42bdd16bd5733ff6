"""Every way in which the aggregator turns a site away has its own word, and its own consequence."""

from __future__ import annotations

import socket
from pathlib import Path

import grpc
import pytest

from dcfpca.doctor.connection_diagnosis import Address, Files
from participant.link.calls import TRANSIENT
from participant.link.connection_errors import Remedy, trouble_of

FILES = Files(Path("ca.pem"), Path("cert.pem"), Path("key.pem"))
Code = grpc.StatusCode


def failed(code: grpc.StatusCode, said: str = "so it is\nhint: do that") -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=said, debug_error_string=None)


@pytest.mark.parametrize(
    ("code", "kind", "remedy"),
    [
        (Code.RESOURCE_EXHAUSTED, "overloaded", Remedy.RETRY),
        (Code.ALREADY_EXISTS, "already_connected", Remedy.RETRY_A_WHILE),
        (Code.UNAUTHENTICATED, "unauthenticated", Remedy.FIX_FIRST),
        (Code.PERMISSION_DENIED, "not_permitted", Remedy.STOP),
        (Code.FAILED_PRECONDITION, "incompatible_version", Remedy.STOP),
        (Code.UNIMPLEMENTED, "incompatible_version", Remedy.STOP),
        (Code.INTERNAL, "aggregator_failed", Remedy.RETRY),
    ],
)
def test_each_refusal_has_its_word_and_its_remedy(code: grpc.StatusCode, kind: str, remedy: Remedy) -> None:
    trouble = trouble_of(failed(code), Address("localhost", 1), FILES)
    assert (trouble.kind, trouble.remedy) == (kind, remedy)
    assert "hint:" not in str(trouble.error)


def test_an_aggregator_that_nobody_hears_is_unreachable_and_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    trouble = trouble_of(failed(Code.UNAVAILABLE, ""), Address("127.0.0.1", port), FILES)
    assert (trouble.kind, trouble.remedy) == ("unreachable", Remedy.RETRY)


def test_calls_are_made_again_only_where_that_can_help() -> None:
    hopeless = {
        Code.UNAUTHENTICATED,
        Code.PERMISSION_DENIED,
        Code.FAILED_PRECONDITION,
        Code.INVALID_ARGUMENT,
        Code.NOT_FOUND,
        Code.UNIMPLEMENTED,
    }
    assert not TRANSIENT & hopeless
    assert {Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED, Code.DEADLINE_EXCEEDED} <= TRANSIENT
