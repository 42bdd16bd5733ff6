"""Every way in which the aggregator turns a site away has its own word, and its own consequence."""

from __future__ import annotations

import socket
from pathlib import Path

import grpc
import pytest

from dcfpca.wire.addresses import Address, TlsFiles
from participant.link.assignment_stream import Recovery, classify_failure
from participant.link.calls import TRANSIENT

FILES = TlsFiles(Path("ca.pem"), Path("cert.pem"), Path("key.pem"))
Code = grpc.StatusCode


def failed(code: grpc.StatusCode, said: str = "so it is\nhint: do that") -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=said, debug_error_string=None)


@pytest.mark.parametrize(
    ("code", "kind", "recovery"),
    [
        (Code.RESOURCE_EXHAUSTED, "overloaded", Recovery.RETRY),
        (Code.ALREADY_EXISTS, "already_connected", Recovery.RETRY_A_WHILE),
        (Code.UNAUTHENTICATED, "unauthenticated", Recovery.FIX_FIRST),
        (Code.PERMISSION_DENIED, "not_permitted", Recovery.STOP),
        (Code.FAILED_PRECONDITION, "incompatible_version", Recovery.STOP),
        (Code.UNIMPLEMENTED, "incompatible_version", Recovery.STOP),
        (Code.INTERNAL, "aggregator_failed", Recovery.RETRY),
    ],
)
def test_each_refusal_has_its_word_and_its_remedy(code: grpc.StatusCode, kind: str, recovery: Recovery) -> None:
    failure = classify_failure(failed(code), Address("localhost", 1), FILES)
    assert (failure.kind, failure.recovery) == (kind, recovery)
    assert "hint:" not in str(failure.error)


def test_an_aggregator_that_nobody_hears_is_unreachable_and_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    failure = classify_failure(failed(Code.UNAVAILABLE, ""), Address("127.0.0.1", port), FILES)
    assert (failure.kind, failure.recovery) == ("unreachable", Recovery.RETRY)


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
