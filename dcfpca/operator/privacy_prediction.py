"""What an operator may expect of a run with differential privacy, before it is proposed and anything is spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dcfpca.errors import Refused
from dcfpca.methods import schedule_of
from dcfpca.rpca.private.prediction import expectation_text, predicted_error, prediction_text
from dcfpca.spec import RunSpec, parse_spec
from dcfpca.v1 import admin_pb2 as pb


def expected_error(proposed: bytes, columns: float | None, known: Sequence[pb.ParticipantView]) -> str:
    """One sentence on the error to expect with about so many columns in all; Refused if it is above `max_error`.

    Sites do not state their numbers of columns: where the operator does not know the order of magnitude either, the
    noisy count that opens the run decides.
    """
    spec = parse_spec(proposed)
    privacy, rows = spec.privacy, spec.rows or _reported_rows(known)
    assert privacy is not None
    if columns is None or not rows:
        what = "--columns" if columns is None else "--rows"
        return (
            f"at ε = {privacy.epsilon:g} the error depends on how many columns the sites have: give {what}"
            " to see it first; else the run ends after its opening if its noisy count predicts sin θ above"
            f" {privacy.max_error:g} (privacy.max_error)"
        )
    spec = spec if spec.rows else spec.model_copy(update={"rows": rows})
    schedule, surplus = schedule_of(privacy), _surplus(spec, privacy.conspirators, known)
    if (error := predicted_error(rows, spec.width, columns, schedule, surplus)) > privacy.max_error:
        hint = "raise epsilon, lower the rank, or raise max_error in [privacy] if such a result is of use"
        expected = expectation_text(privacy.epsilon, columns, error)
        raise Refused(f"{expected}, above the {privacy.max_error:g} that the spec allows (privacy.max_error)", hint)
    return prediction_text(privacy.epsilon, columns, error, spec.width)


def _reported_rows(known: Sequence[pb.ParticipantView]) -> int:
    """The number of rows that most connected participants have; 0 if none says."""
    counted = Counter(one.rows for one in known if one.state == "connected" and one.rows)
    return counted.most_common(1)[0][0] if counted else 0


def _surplus(spec: RunSpec, conspirators: int, known: Sequence[pb.ParticipantView]) -> float:
    """The variance of all sites' noise over that of the honest ones."""
    sites = len(spec.participants) or sum(one.state == "connected" for one in known)
    return sites / max(sites - conspirators, 1) if sites else 1.0
