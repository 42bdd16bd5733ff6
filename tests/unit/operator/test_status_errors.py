import grpc
import pytest

from dcfpca.errors import BadIdentity, BadInput, DcfpcaError, Refused, Unreachable
from dcfpca.operator.client import translate
from dcfpca.wire.addresses import Address

WHERE = Address("agg.example.org", 8443)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, BadIdentity),
        (grpc.StatusCode.PERMISSION_DENIED, Refused),
        (grpc.StatusCode.INVALID_ARGUMENT, BadInput),
        (grpc.StatusCode.NOT_FOUND, Refused),
        (grpc.StatusCode.FAILED_PRECONDITION, Refused),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Refused),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Unreachable),
        (grpc.StatusCode.UNIMPLEMENTED, Unreachable),
        (grpc.StatusCode.INTERNAL, DcfpcaError),
    ],
)
def test_each_status_becomes_its_own_kind_of_error(code: grpc.StatusCode, kind: type[DcfpcaError]) -> None:
    assert type(translate(code, "something", WHERE)) is kind


def test_the_aggregators_own_sentence_and_hint_are_kept_apart() -> None:
    error = translate(grpc.StatusCode.INVALID_ARGUMENT, "rank: too large\nhint: lower it", WHERE)
    assert (str(error), error.hint) == ("rank: too large", "lower it")


def test_a_missing_run_hints_at_the_listing() -> None:
    assert "dcfpca run list" in translate(grpc.StatusCode.NOT_FOUND, "there is no run x", WHERE).hint
