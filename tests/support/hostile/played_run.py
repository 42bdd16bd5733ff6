"""What every run has that a `LyingAggregator` plays: a spec, sites that enrol, announcements, an end."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from threadpoolctl import threadpool_limits

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus, FloatArray, TensorMessage, Total
from dcfpca.spec import parse_spec
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.tensors import header_of, message_bytes
from tests.support.hostile.lying_aggregator import LyingAggregator


class PlayedRun:
    """One run over these sites; `consensus` is what an honest aggregator announces next."""

    def __init__(self, liar: LyingAggregator, names: Iterable[str], **spec: Any) -> None:
        self.liar, self.names = liar, tuple(sorted(names))
        rows = liar.federation.data[self.names[0]].shape[0]
        keys = {"method": "subspace", "rank": 2, "rows": rows, "rounds": 4, "tolerance": 0.0, "round_seconds": 5.0}
        # The attacks are on the rounds of the fit, which is where sites compute on what they are told.
        self.spec = parse_spec(keys | {"closing_rounds": False, "participants": self.names} | spec)
        self.run_id = f"run-{uuid.uuid4().hex[:12]}"
        self.method = method_of(self.spec)
        self.consensus: Consensus = self.method.begin()

    def propose(self) -> None:
        """Propose the run to every site."""
        for name in self.names:
            self.tell(name, run_proposed=pb.RunProposed(spec=self.spec.canonical(), spec_sha256=self.spec.digest()))

    def enrol(self) -> dict[str, pb.RespondRequest]:
        """Propose the run to every site; what each answers."""
        self.propose()
        return {name: self.liar.await_call("Respond", name, self.run_id).request for name in self.names}

    def tell(self, name: str, **what: Any) -> None:
        """An assignment of this run."""
        self.liar.tell(name, self.run_id, **what)

    def announcement(self, consensus: Consensus | None = None, attempt: int = 1) -> pb.RoundOpened:
        """The round that is due, with another consensus if one is given."""
        announced = consensus or self.consensus
        payload = message_bytes(announced.broadcast)
        return pb.RoundOpened(
            ref=types.RoundRef(run_id=self.run_id, round=announced.round, attempt=attempt),
            spec_sha256=self.spec.digest(),
            cohort=self.names,
            consensus=header_of(payload, self.method.stage(announced.stage).down, types.DTYPE_FLOAT64),
            inline_consensus=payload,
            stage=announced.stage,
        )

    def open(self, opened: pb.RoundOpened | Mapping[str, pb.RoundOpened]) -> int:
        """Announce a round, to each site its own if they differ; the place in `heard` from which answers may come."""
        each = opened if isinstance(opened, Mapping) else dict.fromkeys(self.names, opened)
        after = len(self.liar.heard)
        for name, message in each.items():
            # A site that was restarted fetches the consensus of the round that it was in.
            self.liar.consensus[self.run_id, message.ref.round, False] = (message.consensus, message.inline_consensus)
            self.tell(name, round_opened=message)
        return after

    def advance(self, round: int, numbers: FloatArray, contributors: int) -> None:
        """Go on to what follows from this sum."""
        sums = TensorMessage.unflatten(self.method.stage(self.consensus.stage).up, numbers)
        with threadpool_limits(1):
            self.consensus = self.method.advance(self.consensus, Total(sums, contributors))

    def finish(self, status: str = "finished", names: Iterable[str] = (), reason: str = "as the test says") -> None:
        """Tell these sites, or all, that the run is over, with the consensus it has."""
        payload, round = message_bytes(self.consensus.broadcast), self.consensus.round
        header = header_of(payload, self.method.stage(self.consensus.stage).down, types.DTYPE_FLOAT64)
        self.liar.consensus[self.run_id, round, True] = (header, payload)
        finished = pb.RunFinished(
            status=status,
            reason=reason,
            round=round,
            spec_sha256=self.spec.digest(),
            consensus=header if status == "finished" else None,
            stage=self.consensus.stage,
        )
        for name in names or self.names:
            self.tell(name, run_finished=finished)

    def true_updates(self, announced: Iterable[Consensus]) -> dict[str, FloatArray]:
        """What each site answers to the last of these consensuses, computed here from its data."""
        found, history = {}, list(announced)
        with threadpool_limits(1):
            for name in self.names:
                site = self.method.site(ArrayColumns(self.liar.federation.data[name]))
                for one in history:
                    found[name] = site.answer(one).flat()
        return found


def changed(opened: pb.RoundOpened, change: Callable[[pb.RoundOpened], None]) -> pb.RoundOpened:
    """A copy of an announcement with something different in it."""
    other = pb.RoundOpened()
    other.CopyFrom(opened)
    change(other)
    return other
