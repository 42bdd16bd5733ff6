"""What assignments need beside the run's state, looked up once per stage and shared by all streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.run import secure_sum_checks
from aggregator.run.assignments import Facts
from aggregator.run.backup_recovery import ticket_of
from aggregator.run.phases import deadline
from aggregator.run.state import Run, Status
from dcfpca import secagg
from dcfpca.rpca.method import Consensus
from dcfpca.spec import spec_digest
from dcfpca.v1 import types_pb2 as pb
from dcfpca.wire import header_of, message_bytes
from dcfpca.wire_constants import INLINE_BYTES

if TYPE_CHECKING:
    from aggregator.runner import Runner


BROADCAST_BYTES = 16 << 20
"""What the streams of a run may hold together: in a large cohort the consensus is fetched, some at a time."""


class FactsOfStage:
    """Caches the facts of the present stage, the encoded consensus, and the roster's book."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.spec_sha256 = spec_digest(runner.spec_bytes)
        self._stage: object = None
        self._facts: Facts | None = None
        self._encoded: tuple[Consensus, pb.TensorHeader, bytes] | None = None
        self._book: tuple[object, secagg.Book] | None = None

    def now(self) -> Facts:
        """The facts of the run's present stage."""
        run = self._runner.run
        if self._facts is None or self._stage != run.stage():
            self._facts, self._stage = self._look_up(run), run.stage()
        return self._facts

    def consensus(self) -> tuple[pb.TensorHeader, bytes]:
        """Header and bytes of the consensus that the open round answers, or of the final one."""
        consensus = self._runner.sums.consensus
        if self._encoded is None or self._encoded[0] is not consensus:
            layout = self._runner.method.broadcast_layout(consensus.round)
            payload = message_bytes(consensus.broadcast)
            self._encoded = (consensus, header_of(payload, layout, pb.DTYPE_FLOAT64), payload)
        return self._encoded[1], self._encoded[2]

    def book(self) -> secagg.Book | None:
        """The closed roster of the open attempt; None before it is closed, and in plain runs."""
        round = self._runner.run.round
        if round is None or not round.roster:
            return None
        key = (round.round, round.attempt)
        if self._book is None or self._book[0] != key:
            self._book = (key, secure_sum_checks.book_of(self._runner.spec, self.spec_sha256, self._runner.run, round))
        return self._book[1]

    def _look_up(self, run: Run) -> Facts:
        due = deadline(self._runner.spec, run)
        live = run.status in (Status.RUNNING, Status.FINISHED)
        header, payload = self.consensus() if live else (None, b"")
        small = len(payload) <= INLINE_BYTES and len(payload) * len(run.cohort) <= BROADCAST_BYTES
        inline = payload if run.status is Status.RUNNING and small else b""
        digest = header.sha256 if header is not None else b""
        return Facts(
            spec=self._runner.spec,
            spec_bytes=self._runner.spec_bytes,
            spec_sha256=self.spec_sha256,
            deadline_ms=int(due * 1000) if due else 0,
            consensus=header,
            inline_consensus=inline,
            ticket=ticket_of(run, run.round, digest) if run.round is not None else b"",
            book=self.book() if run.status is Status.RUNNING else None,
        )
