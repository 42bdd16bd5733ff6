"""The results of the demo, and their JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcfpca.demo.problem import Score
from dcfpca.v1 import admin_pb2 as pb


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """The finished run, its score against the truth, and every file that was written."""

    directory: Path
    view: pb.RunView
    score: Score
    refusals: tuple[pb.Refusal, ...]
    results: Mapping[str, Path]
    exported: Path
    report: Path
    files: tuple[Path, ...]
    seconds: float
    method: str

    @property
    def rounds(self) -> int:
        """Rounds of the method, not counting the opening exchange."""
        return max((one.round for one in self.view.rounds), default=0)

    @property
    def bytes_sent(self) -> int:
        """Payload bytes from the aggregator to the sites."""
        return sum(one.bytes_sent for one in self.view.rounds)

    @property
    def bytes_received(self) -> int:
        """Payload bytes from the sites to the aggregator."""
        return sum(one.bytes_received for one in self.view.rounds)


def outcome_document(outcome: DemoOutcome) -> dict[str, Any]:
    """The document of `dcfpca demo --json`; scripts rely on its keys."""
    return {
        "participants": len(outcome.results),
        "method": outcome.method,
        "rounds": outcome.rounds,
        "seconds": round(outcome.seconds, 3),
        "error": outcome.score.error,
        "relative_error_L": outcome.score.low_rank_error,
        "bytes_sent": outcome.bytes_sent,
        "bytes_received": outcome.bytes_received,
        "refusals": [{"participant": one.participant, "reason": "; ".join(one.reasons)} for one in outcome.refusals],
        "files": [str(path) for path in outcome.files],
    }
